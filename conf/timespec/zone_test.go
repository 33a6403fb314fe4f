package timespec

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestPosixZones: what date(1) of the GNU coreutils says with the same TZ at the beginning of 2026, and in its middle.
func TestPosixZones(t *testing.T) {
	winter, summer := time.Unix(1767225600, 0), time.Unix(1782864000, 0)
	for rule, want := range map[string][2]string{
		"JST-9":                       {"2026-01-01T09:00:00 JST", "2026-07-01T09:00:00 JST"},
		"CET-1CEST,M3.5.0,M10.5.0/3":  {"2026-01-01T01:00:00 CET", "2026-07-01T02:00:00 CEST"},
		"EST5EDT,M3.2.0,M11.1.0":      {"2025-12-31T19:00:00 EST", "2026-06-30T20:00:00 EDT"},
		"NZST-12NZDT,M9.5.0,M4.1.0/3": {"2026-01-01T13:00:00 NZDT", "2026-07-01T12:00:00 NZST"},
		"<+0330>-3:30":                {"2026-01-01T03:30:00 +0330", "2026-07-01T03:30:00 +0330"},
		"<-03>3":                      {"2025-12-31T21:00:00 -03", "2026-06-30T21:00:00 -03"},
		"AAA-1BBB-3:00,J60/0,J300/0":  {"2026-01-01T01:00:00 AAA", "2026-07-01T03:00:00 BBB"},
	} {
		loc := posixZone(rule)
		if loc == nil {
			t.Errorf("%s is not read", rule)
			continue
		}
		for i, at := range []time.Time{winter, summer} {
			if got := at.In(loc).Format("2006-01-02T15:04:05 MST"); got != want[i] {
				t.Errorf("%s: %s, want %s", rule, got, want[i])
			}
		}
	}
	for _, rule := range []string{"", "J", "JST", "Nowhere/City", "JST-9\n", "25", "<JST-9"} {
		if loc := posixZone(rule); loc != nil {
			t.Errorf("%q is read as %s", rule, time.Unix(0, 0).In(loc))
		}
	}
}

// TestUseZone runs itself in each zone, because a process reads TZ once.
func TestUseZone(t *testing.T) {
	const child = "SLUICE_TEST_ZONE"
	if os.Getenv(child) != "" {
		UseZone()
		fmt.Println(time.Unix(1767225600, 0).Format("zone=2006-01-02T15:04:05 MST"))
		return
	}
	for tz, want := range map[string]string{"JST-9": "2026-01-01T09:00:00 JST", ":CET-1CEST,M3.5.0,M10.5.0/3": "2026-01-01T01:00:00 CET",
		"UTC": "2026-01-01T00:00:00 UTC", "Nowhere/City": "2026-01-01T00:00:00 UTC", "/no/such/file": "2026-01-01T00:00:00 UTC"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestUseZone$")
		cmd.Env = []string{child + "=1", "TZ=" + tz}
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "zone="+want+"\n") {
			t.Errorf("TZ=%s: %s, %v, want %s", tz, out, err, want)
		}
	}
}
