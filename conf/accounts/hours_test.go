package accounts

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHours(t *testing.T) {
	for text, want := range map[string]string{
		"Mon-Fri 08:00-20:00":                      "Mon-Fri 08:00-20:00",
		"mon-fri 8:00-20:00, SAT 10:00-14:00":      "Mon-Fri 08:00-20:00,Sat 10:00-14:00",
		"Mon,Wed,Fri 08:00-12:30":                  "Mon,Wed,Fri 08:00-12:30",
		"Sun,Sat 00:00-24:00":                      "Sat-Sun 00:00-24:00",
		"Fri-Mon 20:00-08:00":                      "Mon,Fri-Sun 20:00-08:00",
		"08:00-20:00":                              "08:00-20:00",
		"Mon-Sun 22:00-06:00":                      "22:00-06:00",
		"Mon-Fri 08:00-12:00,Mon-Fri 13:00-24:00 ": "Mon-Fri 08:00-12:00,Mon-Fri 13:00-24:00",
		"":    "",
		"Mon": "Mon has no hours", "08:00-20:00,Sat": "Sat has no hours", "Mon 08:00": "not a time span",
		"Mon 08:00-08:00": "not a time span", "Mon 8-20": "not a time window", "Mon 24:00-08:00": "not a time span",
		"Mon 08:60-09:00": "not a time span", "Mon 08:00-24:01": "not a time span", "Mon 08:0-09:00": "not a time span",
		"Foo 08:00-20:00": "are not days", "Mon-Foo 08:00-20:00": "are not days",
		"Mon-Fri Sat 08:00-20:00": "not a time window", ",": "not a time window",
		"Mon 08:00-20:00,": "not a time window", "08:00-20:00:30": "not a time span", "Mon +8:00-20:00": "not a time span",
		strings.Repeat("08:00-09:00,", 100) + "08:00-09:00": "101 windows",
	} {
		h, err := ParseHours(text)
		if got := h.String(); err != nil {
			if !strings.Contains(err.Error(), want) || want == "" {
				t.Errorf("%.80q: %v, want %q", text, err, want)
			}
		} else if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestHoursAt(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("%v: install tzdata", err)
	}
	for _, tt := range []struct{ hours, at, want string }{ // 2026-11-02 is a Monday
		{"Mon-Fri 08:00-20:00", "2026-11-02 07:59", "out until 2026-11-02 08:00"},
		{"Mon-Fri 08:00-20:00", "2026-11-02 08:00", "in until 2026-11-02 20:00"},
		{"Mon-Fri 08:00-20:00", "2026-11-06 20:00", "out until 2026-11-09 08:00"},
		{"Mon-Fri 08:00-20:00,Sat 10:00-14:00", "2026-11-06 20:00", "out until 2026-11-07 10:00"},
		{"Fri 20:00-08:00", "2026-11-07 07:59", "in until 2026-11-07 08:00"},
		{"Fri 20:00-08:00", "2026-11-07 08:00", "out until 2026-11-13 20:00"},
		{"Mon 00:00-24:00,Tue 00:00-12:00", "2026-11-02 13:00", "in until 2026-11-03 12:00"},
		{"Mon 08:00-10:00", "2026-11-02 10:00", "out until 2026-11-09 08:00"},
		{"Mon 08:00-10:00", "2026-11-02 09:00", "in until 2026-11-02 10:00"},
		{"00:00-24:00", "2026-11-02 13:00", "in"},
		{"Mon-Sun 22:00-06:00,06:00-22:00", "2026-11-02 13:00", "in"},
		{"", "2026-11-02 13:00", "in"},
		{"02:30-04:00", "2026-03-29 01:59", "out until 2026-03-29 03:30"}, // there is no half past two
		{"22:00-06:00", "2026-10-24 23:00", "in until 2026-10-25 06:00"},  // nine hours
		{"Sun 08:00-20:00", "2026-03-29 07:59", "out until 2026-03-29 08:00"},
	} {
		h, err := ParseHours(tt.hours)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := time.ParseInLocation("2006-01-02 15:04", tt.at, berlin)
		within, until := h.At(at)
		got := map[bool]string{true: "in", false: "out"}[within]
		if !until.IsZero() {
			got += " until " + until.Format("2006-01-02 15:04")
		}
		if got != tt.want {
			t.Errorf("%s at %s: %s, want %s", tt.hours, tt.at, got, tt.want)
		}
	}
}

// TestHoursHold: from any moment until the next turn nothing changes, and then something does.
func TestHoursHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for range rapid.IntRange(1, 3).Draw(t, "windows") {
			clock := func() string {
				return time.Unix(int64(rapid.IntRange(0, 24*60-1).Draw(t, "minute"))*60, 0).UTC().Format("15:04")
			}
			parts = append(parts, rapid.SampledFrom(dayNames[:]).Draw(t, "first")+"-"+rapid.SampledFrom(dayNames[:]).Draw(t, "last")+" "+
				clock()+"-"+clock())
		}
		h, err := ParseHours(strings.Join(parts, ","))
		if err != nil {
			return // begins as it ends
		}
		if again, err := ParseHours(h.String()); err != nil || again.String() != h.String() {
			t.Fatalf("%v reads as %v: %v", h, again, err)
		}
		at := time.Unix(1793577600+rapid.Int64Range(0, 7*86400).Draw(t, "second"), 0).UTC()
		within, until := h.At(at)
		if until.IsZero() {
			until = at.Add(8 * 24 * time.Hour)
		} else if now, _ := h.At(until); now == within {
			t.Fatalf("%v: nothing changes at %v", h, until)
		}
		for m := at; m.Before(until); m = m.Add(7 * time.Minute) {
			if now, _ := h.At(m); now != within {
				t.Fatalf("%v: it changes before %v, at %v", h, until, m)
			}
		}
	})
}

func FuzzHours(f *testing.F) {
	f.Add("Mon-Fri 08:00-20:00,Sat 10:00-14:00")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHours(text)
		if err != nil {
			return
		}
		if again, err := ParseHours(h.String()); err != nil || again.String() != h.String() {
			t.Errorf("%q is %q, which is %q (%v)", text, h, again, err)
		}
	})
}
