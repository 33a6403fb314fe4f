package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/report"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// reported is an answer of two users, and six hours of eight GPUs that end three hours ago: the second was not looked at.
func reported() *clienttest.Controller {
	now := time.Date(2027, 1, 2, 3, 0, 0, 0, time.UTC) // runWith's time is five minutes later
	r := &pb.ReportReply{SinceNs: now.Add(-168 * time.Hour).UnixNano(), UntilNs: now.UnixNano()}
	const h = 3600
	r.Rows = []*pb.ReportRow{
		{Account: "root", Uid: 0, Jobs: 3, GpuS: 10 * h, GpuUsedS: 6 * h, GpuIdleS: 3 * h, GpuLostS: 1800, GpuLostBesideS: 900,
			GpuWaitedS: 2 * h,
			Started:    2, WaitMedianS: 60, WaitP90S: 3661, CpuS: 20 * h, CpuKnownS: 20 * h, CpuUsedS: 5 * h, MemKnownS: 400, MemUsedS: 100,
			EnergyJ: 3600 * 1500, EnergyGpuS: 9 * h},
		{Account: "physics", Uid: 4_200_000_000, Jobs: 1, GpuWaitedS: h},
	}
	for i := range 6 {
		if i == 1 {
			continue
		}
		r.Hours = append(r.Hours, &pb.ReportHour{StartNs: now.Add(time.Duration(i-9) * time.Hour).UnixNano(), CoveredS: h, TotalS: 8 * h,
			UsedS: 3 * h, IdleS: h, UnknownS: h, FreeS: 2 * h, AskedS: 2 * h, LostS: h, DownS: h, WaitingS: 5 * h})
	}
	return &clienttest.Controller{Reported: r}
}

// TestReport: the table, all figures for programs, JSON; what is not known is n/a, empty or null and never 0.
func TestReport(t *testing.T) {
	c := reported()
	stdout, stderr, exit := runFunc(t, c, report.Verb().Main)
	if exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	for _, want := range []string{
		"\nUSER        ACCOUNT  JOBS  GPU-H  USED  IDLE   N/A  LOST  WAITED    WAIT50    WAIT90  CPU-H  CPU%  MEM%   ENERGY\n",
		"\nroot        root        3  10.00  6.00  3.00  1.00  0.50    2.00  00:01:00  01:01:01  20.00  25.0  25.0  1.50kWh\n",
		"\n4200000000  physics     1   0.00  0.00  0.00  0.00  0.00    1.00         -         -   0.00   n/a   n/a      n/a\n",
		"\nall                     4  10.00  6.00  3.00  1.00  0.50    3.00         -         -  20.00  25.0  25.0  1.50kWh\n",
		"40.0 GPU-hours: 37.5% used by jobs; 12.5% held idle; 12.5% held, utilization not known; 12.5% free, lost to fragmentation; " +
			"12.5% free while jobs waited for GPUs; 12.5% down; 163.0 h not recorded\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("without %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") || strings.Contains(stdout, "|") {
		t.Errorf("a picture on no terminal:\n%s", stdout)
	}
	if ask := c.ReportAsked[0]; ask.By != "user" || ask.UntilNs-ask.SinceNs != int64(7*24*time.Hour) {
		t.Errorf("asked %v", ask)
	}
	stdout, _, _ = runFunc(t, c, report.Verb().Main, "-P")
	want := "User|Account|Jobs|GPUHours|GPUHoursUsed|GPUHoursIdle|GPUHoursUnknown|GPUHoursLost|GPUHoursLostBeside|GPUHoursWaited|Started|" +
		"WaitMedianSec|WaitP90Sec|CPUHours|CPUEfficiency|MemEfficiency|EnergyJ\n" +
		"root|root|3|10.0000|6.0000|3.0000|1.0000|0.5000|0.2500|2.0000|2|60|3661|20.0000|25.0|25.0|5400000\n" +
		"4200000000|physics|1|0.0000|0.0000|0.0000|0.0000|0.0000|0.0000|1.0000|0|||0.0000|||\n"
	if stdout != want {
		t.Errorf("got\n%swant\n%s", stdout, want)
	}
	stdout, _, _ = runFunc(t, c, report.Verb().Main, "--json", "--by=account", "-S", "now-2days", "-A", "physics,root", "-p", "debug")
	var doc struct {
		Rows []struct {
			CPU    *float64 `json:"cpu_efficiency"`
			Energy *float64 `json:"energy_joules"`
		}
		Hours []struct {
			Covered float64 `json:"covered_seconds"`
			Lost    float64 `json:"lost_to_fragmentation"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || len(doc.Rows) != 2 || len(doc.Hours) != 5 || doc.Hours[0].Lost != 3600 ||
		*doc.Rows[0].CPU != 0.25 || doc.Rows[1].CPU != nil || doc.Rows[1].Energy != nil {
		t.Errorf("%v: %s", err, stdout)
	}
	if ask := c.ReportAsked[2]; ask.By != "account" || len(ask.Accounts) != 2 || len(ask.Partitions) != 1 ||
		ask.UntilNs-ask.SinceNs > int64(48*time.Hour) {
		t.Errorf("asked %v", ask)
	}
}

// TestReportRefuses: what cannot be read is refused before the controller is asked.
func TestReportRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--by=weather":                      "--by takes user, account, partition or node",
		"-u no-such-user-here":              "there is no user no-such-user-here",
		"-S now -E now-1day":                "is not before",
		"-S yesteryear":                     ": error: cannot read time",
		"what":                              `unknown argument "what"`,
		"--svg=/no/such/folder/picture.svg": "cannot write the chart",
	} {
		c := reported()
		_, stderr, exit := runFunc(t, c, report.Verb().Main, strings.Fields(line)...)
		if exit == 0 || !strings.Contains(strings.ToLower(stderr), strings.ToLower(want)) {
			t.Errorf("%s: exit %d, %q, want %q", line, exit, stderr, want)
		}
	}
}

// TestReportPicture: the columns of characters have each kind in its part, gaps are blank, and the SVG is sound XML with the same parts.
func TestReportPicture(t *testing.T) {
	c := reported()
	reportStart := time.Date(2027, 1, 1, 18, 0, 0, 0, time.UTC).Local().Format("2006-01-02T15:04:05")
	stdout, _, _ := runFunc(t, c, report.Verb().Main, "--chart", "-n", "-S", reportStart)
	for _, want := range []string{", hour by hour\n", "\n8 |x xxxx", "\n  |+ ++++", "  |! !!!!", "  |? ????", "\n4 |= ====",
		"  |# ####", "\n0 +---------",
		"\n   ^ ^^^^\n", "# used by jobs", "! free, lost to fragmentation", "(blank) not recorded"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("without %q:\n%s", want, stdout)
		}
	}
	file := filepath.Join(t.TempDir(), "week.svg")
	if _, stderr, exit := runFunc(t, c, report.Verb().Main, "--svg", file); exit != 0 {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
	}
	for _, want := range []string{"<title>GPUs", "used by jobs", "lost to fragmentation", "not recorded", `fill="#0072B2"`,
		"url(#h3)", "url(#gap)", "GPUs requested by waiting jobs"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the SVG has no %q", want)
		}
	}
	for _, line := range regexp.MustCompile(`font-size="12">([^<]*)<`).FindAllStringSubmatch(string(text), -1) {
		if len(line[1]) > 155 {
			t.Errorf("the SVG has no room for %q", line[1])
		}
	}
	stdout, _, exit := runFunc(t, c, report.Verb().Main, "--svg=-")
	if exit != 0 || !strings.HasPrefix(stdout, "<svg ") || strings.Contains(stdout, "Resources used") {
		t.Errorf("to standard output: exit %d, %.200s", exit, stdout)
	}
	// Nothing recorded is said, and drawn as such.
	empty := &clienttest.Controller{Reported: &pb.ReportReply{}}
	if stdout, _, exit := runFunc(t, empty, report.Verb().Main, "--chart"); exit != 0 ||
		!strings.Contains(stdout, "no records for this period") ||
		!strings.Contains(stdout, "No chart") {
		t.Errorf("of nothing: exit %d, %s", exit, stdout)
	}
	if stdout, _, exit := runFunc(t, empty, report.Verb().Main, "--svg=-"); exit != 0 || !strings.Contains(stdout, "url(#gap)") {
		t.Errorf("of nothing: exit %d, %.200s", exit, stdout)
	}
}
