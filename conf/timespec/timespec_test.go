package timespec

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rows reads a table of recorded answers.
func rows(t testing.TB, file string) [][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		}
	}
	return out
}

func TestDurationsAsRecorded(t *testing.T) {
	for _, r := range rows(t, "testdata/durations.tsv") {
		min, err := ParseMinutes(r[0])
		if r[1] == "!" {
			if err == nil || !strings.Contains(err.Error(), "days-hours") {
				t.Errorf("ParseMinutes(%q) = %d, %v, want a refusal that names the forms", r[0], min, err)
			}
			continue
		}
		elapsed := Elapsed(min * 60)
		if min == Unlimited {
			elapsed = Elapsed(Unlimited)
		}
		if err != nil || ClockMinutes(min) != r[1] || elapsed != r[2] {
			t.Errorf("%q is %s and %s (%v), want %s and %s", r[0], ClockMinutes(min), elapsed, err, r[1], r[2])
		}
	}
}

func TestDurationSeconds(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{
		{"0", 0}, {"1:30", 90}, {"0:05", 5}, {"1:2:3", 3723}, {"2-3", 183600}, {"1-02:03:04", 93784}, {"unlimited", Unlimited},
	} {
		if got, err := ParseSeconds(c.in); err != nil || got != c.want {
			t.Errorf("ParseSeconds(%q) = %d, %v, want %d", c.in, got, err, c.want)
		}
	}
	// Slurm wraps these around; here they are refused.
	for _, in := range []string{"-2", "-5", "71582788", "4294967295", "999999999999999999999", "99999999-0", "1-", "-", "--1"} {
		if got, err := ParseSeconds(in); err == nil {
			t.Errorf("ParseSeconds(%q) = %d, want an error", in, got)
		}
	}
}

func TestElapsed(t *testing.T) {
	for _, c := range []struct {
		sec            int64
		elapsed, clock string
	}{
		{0, "0:00", "00:00:00"}, {5, "0:05", "00:00:05"}, {1800, "30:00", "00:30:00"}, {3600, "1:00:00", "01:00:00"},
		{93784, "1-02:03:04", "1-02:03:04"}, {-7, "INVALID", "INVALID"}, {Unlimited, "UNLIMITED", "UNLIMITED"},
	} {
		if e, k := Elapsed(c.sec), Clock(c.sec); e != c.elapsed || k != c.clock {
			t.Errorf("%d s: %s and %s, want %s and %s", c.sec, e, k, c.elapsed, c.clock)
		}
	}
}

// TestDurationRoundTrip: what scontrol prints can be given back.
func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sec := rapid.Int64Range(-1, maxMinutes*60).Draw(t, "seconds")
		if got, err := ParseSeconds(Clock(sec)); err != nil || got != sec {
			t.Fatalf("ParseSeconds(%s) = %d, %v, want %d", Clock(sec), got, err, sec)
		}
		if sec <= year {
			if got, err := ParseSeconds(Elapsed(sec)); err != nil || got != sec {
				t.Fatalf("ParseSeconds(%s) = %d, %v, want %d", Elapsed(sec), got, err, sec)
			}
		}
	})
}

var recordedAt = time.Date(2026, 11, 20, 15, 23, 56, 0, time.UTC)

func TestMomentsAsRecorded(t *testing.T) {
	for _, r := range rows(t, "testdata/begin.tsv") {
		got, err := ParseMoment(r[0], recordedAt, time.UTC, Future)
		if r[1] == "!" {
			var e *MomentError
			if !errors.As(err, &e) {
				t.Errorf("ParseMoment(%q) = %s, %v, want a refusal", r[0], got.Format(Layout), err)
			}
			continue
		}
		if err != nil || got.Format(Layout) != r[1] {
			t.Errorf("ParseMoment(%q) = %s, %v, want %s", r[0], got.Format(Layout), err, r[1])
		}
	}
}

// TestMomentsBeyond holds what the recorded answers do not: past moments,
// moments before now, and what Slurm gets wrong.
func TestMomentsBeyond(t *testing.T) {
	for _, c := range []struct {
		in   string
		dir  Direction
		want string
	}{
		{"now", Future, "2026-11-20T15:23:56"},
		{"now-1hour", Past, "2026-11-20T14:23:56"},
		{"today", Future, "2026-11-20T00:00:00"},
		{"Today", Past, "2026-11-20T00:00:00"},
		{"TOMORROW", Future, "2026-11-21T00:00:00"},
		{"elevenses", Future, "2026-11-21T11:00:00"},
		{"1225", Future, "2026-12-25T00:00:00"},
		{"0101", Past, "2026-01-01T00:00:00"},
		{"1231", Past, "2025-12-31T00:00:00"},
		{"0101-10:00", Past, "2026-01-01T10:00:00"},
		{"10:00 0101", Past, "2026-01-01T10:00:00"},
		{"uts1577836800", Past, "2020-01-01T00:00:00"},
		{"112026", Future, "2026-11-20T00:00:00"},
		{"2020-02-29", Future, "2020-02-29T00:00:00"},
		{"16:00", Past, "2026-11-20T16:00:00"},
		{"10:00", Past, "2026-11-20T10:00:00"},
		{"noon", Past, "2026-11-20T12:00:00"},
		{"midnight", Past, "2026-11-20T00:00:00"},
		{"12/25", Past, "2025-12-25T00:00:00"},
		{"11/20", Past, "2026-11-20T00:00:00"},
		{"15:23:56", Future, "2026-11-20T15:23:56"},
		{"4:30:15 PM", Future, "2026-11-20T16:30:15"},
		{"02/30", Future, ""},
		{"2027-02-29", Future, ""},
		{"02/29", Future, ""},
		{"noon noon", Future, ""},
		{"today tomorrow", Future, ""},
		{"now+9999999999999999", Future, ""},
		{"now+99999999weeks", Future, ""},
		{"9999-12-31", Future, ""}, // no moment of ours: it would wrap to one that has passed
		{"2262-01-01", Future, ""},
		{"2261-12-31", Future, "2261-12-31T00:00:00"},
	} {
		got, err := ParseMoment(c.in, recordedAt, time.UTC, c.dir)
		if (err != nil) != (c.want == "") || err == nil && got.Format(Layout) != c.want {
			t.Errorf("ParseMoment(%q, %d) = %s, %v, want %q", c.in, c.dir, got.Format(Layout), err, c.want)
		}
	}
}

func TestMomentIsLocal(t *testing.T) {
	loc := time.FixedZone("X", 5*3600)
	got, err := ParseMoment("2027-01-02T03:04", recordedAt, loc, Future)
	if err != nil || !got.Equal(time.Date(2027, 1, 1, 22, 4, 0, 0, time.UTC)) || got.Location() != loc {
		t.Errorf("ParseMoment = %v, %v", got, err)
	}
	// 15:23 UTC is 20:23 there, so 16:00 has passed.
	if got, _ := ParseMoment("16:00", recordedAt, loc, Future); got.Day() != 21 {
		t.Errorf("16:00 = %v, want the 21st", got)
	}
}

func TestMomentErrorsSayWhere(t *testing.T) {
	_, err := ParseMoment("2027-01-02T25:00", recordedAt, time.UTC, Future)
	if err == nil || err.Error() != `cannot read time "2027-01-02T25:00": at character 12: an hour is at most 23; 00:00 is midnight` {
		t.Errorf("error: %v", err)
	}
}

// TestFutureIsNotPast: a clock time or a day without a year never lies behind
// now in the direction Future.
func TestFutureIsNotPast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "now"), 0)
		text := rapid.SampledFrom([]string{"00:00", "12:34:56", "noon", "teatime", "1/2", "12/31 23:59", "7/4", "tomorrow"}).Draw(t, "text")
		got, err := ParseMoment(text, now, time.UTC, Future)
		if err != nil || got.Before(now) || got.Sub(now) > 367*24*time.Hour {
			t.Fatalf("ParseMoment(%q, %v) = %v, %v", text, now.UTC(), got, err)
		}
		back, err := ParseMoment(got.Format(Layout), now, time.UTC, Future)
		if err != nil || !back.Equal(got) {
			t.Fatalf("ParseMoment(%s) = %v, %v", got.Format(Layout), back, err)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, r := range rows(f, "testdata/durations.tsv") {
		f.Add(r[0])
	}
	f.Fuzz(func(t *testing.T, s string) {
		sec, err := ParseSeconds(s)
		if err != nil {
			return
		}
		if sec < Unlimited || sec > maxMinutes*60 {
			t.Fatalf("ParseSeconds(%q) = %d", s, sec)
		}
		if back, err := ParseSeconds(Clock(sec)); err != nil || back != sec {
			t.Fatalf("ParseSeconds(%s) = %d, %v, want %d", Clock(sec), back, err, sec)
		}
	})
}

func FuzzMoment(f *testing.F) {
	for _, r := range rows(f, "testdata/begin.tsv") {
		f.Add(r[0])
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, dir := range []Direction{Future, Past} {
			got, err := ParseMoment(s, recordedAt, time.UTC, dir)
			if err != nil {
				continue
			}
			if back, err := ParseMoment(got.Format(Layout), recordedAt, time.UTC, dir); err != nil || !back.Equal(got) {
				t.Fatalf("ParseMoment(%q) = %s, which reads as %v, %v", s, got.Format(Layout), back, err)
			}
		}
	})
}

// TestMomentsWithinText: each moment in a text of the controller is shown by the clock of the reader, and nothing else is changed.
func TestMomentsWithinText(t *testing.T) {
	zone := time.FixedZone("JST", 9*3600)
	begin, end := FormatUTC(1764309000e9), FormatUTC(1764309061e9+999)
	for text, want := range map[string]string{
		"":                                   "",
		"from " + begin + " to " + end + ".": "from 2025-11-28T14:50:00 to 2025-11-28T14:51:01.",
		begin + end:                          "2025-11-28T14:50:002025-11-28T14:51:01",
		"2025-13-28T05:50:00Z, 2025-11-28T05:50:00, 5:50:00Z Z": "2025-13-28T05:50:00Z, 2025-11-28T05:50:00, 5:50:00Z Z",
	} {
		if got := LocalTimes(text, zone); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
