package crontab

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const layout = "2006-01-02 15:04 MST"

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestNext(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct{ spec, after, want string }{
		{"*/5 * * * *", "2026-11-20 18:04 CET", "2026-11-20 18:05 CET"},
		{"0 9-17/4 * * mon-fri", "2026-11-20 18:00 CET", "2026-11-23 09:00 CET"},
		{"0 0 1 1 *", "2026-11-20 18:00 CET", "2027-01-01 00:00 CET"},
		{"@daily", "2026-11-20 18:00 CET", "2026-11-21 00:00 CET"},
		{"@teatime", "2026-11-20 15:59 CET", "2026-11-20 16:00 CET"},
		{"@weekly", "2026-11-20 18:00 CET", "2026-11-22 00:00 CET"},
		{"0 0 * * 7", "2026-11-20 18:00 CET", "2026-11-22 00:00 CET"},
		{"0 0 * * 6-7", "2026-11-21 00:00 CET", "2026-11-22 00:00 CET"},
		{"0 0 * * 1-7/3", "2026-11-20 00:00 CET", "2026-11-22 00:00 CET"}, // Mon, Thu, Sun
		{"0 0 13 * fri", "2026-11-20 18:00 CET", "2026-11-27 00:00 CET"},  // day of month or day of week
		// To summer time: 02:30 does not exist on 2026-03-29; the day is not left out, and nothing runs twice.
		{"30 2 * * *", "2026-03-28 02:30 CET", "2026-03-29 03:00 CEST"},
		{"30 2 * * *", "2026-03-29 03:00 CEST", "2026-03-30 02:30 CEST"},
		{"15,45 2 * * *", "2026-03-29 03:00 CEST", "2026-03-30 02:15 CEST"},
		{"30 * * * *", "2026-03-29 01:30 CET", "2026-03-29 03:30 CEST"},
		// From summer time: 02:30 comes twice on 2026-10-25.
		{"30 2 * * *", "2026-10-24 02:30 CEST", "2026-10-25 02:30 CEST"},
		{"30 2 * * *", "2026-10-25 02:30 CEST", "2026-10-26 02:30 CET"},
		{"30 2 * * *", "2026-10-25 02:10 CET", "2026-10-26 02:30 CET"},
		{"30 * * * *", "2026-10-25 02:30 CEST", "2026-10-25 02:30 CET"},
		{"0 3 * * *", "2026-10-25 02:30 CEST", "2026-10-25 03:00 CET"},
	} {
		s, err := Parse(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		after := at(t, c.after, berlin)
		if got := s.Next(after, berlin).Format(layout); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.spec, c.after, got, c.want)
		}
	}
}

// at reads a time of Berlin with its zone's name, which tells the two halves of a repeated hour apart.
func at(t *testing.T, text string, loc *time.Location) time.Time {
	t.Helper()
	wall, name := text[:16], text[17:]
	parsed, err := time.Parse("2006-01-02 15:04", wall)
	if err != nil {
		t.Fatal(err)
	}
	offset := map[string]time.Duration{"CET": time.Hour, "CEST": 2 * time.Hour}[name]
	return parsed.Add(-offset).In(loc)
}

func TestRefused(t *testing.T) {
	for _, spec := range []string{"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
		"* * * * 7/2", "@reboot", "@every 1s", "TZ=UTC * * * *",
		"? * * * *", "0 0 31 2 *", "a b c d e", "*/0 * * * *", "5-1 * * * *", "* * * * 9-7", "-1 * * * *",
		strings.Repeat("1,", 600) + "1 * * * *"} {
		if s, err := Parse(spec); err == nil {
			t.Errorf("%q is taken: %v", spec, s.Next(time.Unix(0, 0), time.UTC))
		}
	}
}

// The next moment is later, on a full minute, and of a line with a fixed hour never two on one day.
func TestNextProperties(t *testing.T) {
	zones := []*time.Location{time.UTC, zone(t, "Europe/Berlin"), zone(t, "America/New_York"), zone(t, "Australia/Lord_Howe"),
		zone(t, "Africa/Casablanca")}
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		minute, hour := rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 23).Draw(t, "hour")
		s, err := Parse(time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC).Format("4 15") + " * * *")
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1.7e9, 2.1e9).Draw(t, "after"), 0)
		for range 400 {
			next := s.Next(at, loc)
			if !next.After(at) || next.Second() != 0 {
				t.Fatalf("after %v comes %v", at.In(loc), next)
			}
			if d := next.Sub(at); d > 26*time.Hour {
				t.Fatalf("%v between %v and %v", d, at.In(loc), next)
			}
			if at.In(loc).Format("0102") == next.Format("0102") && at.Unix()%60 == 0 && at.In(loc).Hour() == hour &&
				at.In(loc).Minute() == minute {
				t.Fatalf("twice on one day: %v and %v", at.In(loc), next)
			}
			at = next
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"*/5 * * * *", "@daily", "0 0 * * 5-7", "1,2-3/4 * 1-31 jan-dec sun", "* * * * 7/1", "\x00 * * * *"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := Parse(spec)
		if err != nil {
			return
		}
		from := time.Unix(1.8e9, 0)
		if next := s.Next(from, time.UTC); !next.IsZero() && !next.After(from) {
			t.Errorf("%q after %v: %v", spec, from, next)
		}
	})
}
