// Package crontab computes when a crontab line is due. Lines have the five fields and the words of crontab(5) (@daily), and those of
// scrontab(1) (@noon, @teatime, …). Pure: the caller gives the start time and the time zone.
//
// robfig/cron parses the fields. This package adds that Sunday is 7 as well as 0, and that a change to or from summer time neither skips a
// day's run nor doubles it. As with Vixie's cron, a line with a fixed hour runs once a day: at the first moment after the gap when its time
// does not exist, and the first time when it comes twice. A line for every hour ("*" in the field of hours) goes by elapsed time.
package crontab

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is the schedule of a line.
type Schedule struct {
	fields cron.Schedule
	hourly bool // the hour is "*": goes by elapsed time
}

// words are abbreviations of five fields.
var words = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *", "@elevenses": "0 11 * * *", "@fika": "0 15 * * *", "@noon": "0 12 * * *", "@teatime": "0 16 * * *",
}

// maxText bounds the length of one line's schedule.
const maxText = 1000

// Parse parses five fields, or a word.
func Parse(text string) (*Schedule, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("the time has %d bytes, at most %d", len(text), maxText)
	}
	if strings.HasPrefix(text, "@") {
		fields, ok := words[strings.ToLower(text)]
		if !ok {
			return nil,
				fmt.Errorf(
					"%q is not a time: expected @hourly, @daily, @weekly, @monthly, @yearly, @midnight, @noon, @elevenses, @fika or "+
						"@teatime",
					text)
		}
		text = fields
	}
	f := strings.Fields(text)
	if len(f) != 5 {
		return nil, fmt.Errorf("%q has %d fields, expected 5: minute, hour, day of month, month, day of week", text, len(f))
	}
	for _, field := range f {
		if strings.ContainsAny(field, "?@=") { // Quartz, and TZ=, which only whole files may set
			return nil, fmt.Errorf("cannot read %q in %q", field, text)
		}
	}
	week, err := weekdays(f[4])
	if err != nil {
		return nil, err
	}
	s, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(append(f[:4:4], week), " "))
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", text, err)
	}
	out := &Schedule{fields: s, hourly: strings.HasPrefix(f[1], "*")}
	if out.Next(time.Unix(0, 0).UTC(), time.UTC).IsZero() {
		return nil, errors.New(strconv.Quote(text) + " never comes")
	}
	return out, nil
}

// weekdays converts the field of weekdays so that Sunday is 0: "5-7" becomes "5-6,0".
func weekdays(field string) (string, error) {
	var out []string
	for _, part := range strings.Split(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		if first != "7" && last != "7" {
			out = append(out, part)
			continue
		}
		from, err := strconv.Atoi(first)
		step := 1
		if err == nil && stepped {
			step, err = strconv.Atoi(stepText)
		}
		if err != nil || from > 7 || from < 0 || step < 1 || stepped && !ranged {
			return "", fmt.Errorf("cannot read %q as days of the week", part)
		}
		for day := from; day <= 7; day += step {
			out = append(out, strconv.Itoa(day%7))
		}
	}
	return strings.Join(out, ","), nil
}

// Hourly reports whether the line's hour is "*": it goes by elapsed time.
func (s *Schedule) Hourly() bool { return s.hourly }

// Next returns the first moment after `after` at which the line is due, zero when there is none within five years.
func (s *Schedule) Next(after time.Time, loc *time.Location) time.Time {
	if s.hourly {
		return s.fields.Next(after.In(loc))
	}
	// Fixed hours are computed on a clock without changes, and converted to the zone afterwards.
	y, m, d := after.In(loc).Date()
	hh, mm, ss := after.In(loc).Clock()
	wall := time.Date(y, m, d, hh, mm, ss, 0, time.UTC)
	for {
		if wall = s.fields.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if t := inZone(wall, loc); t.After(after) {
			return t
		}
	}
}

// inZone returns the moment at which the zone's clocks show wall: the first when they show it twice, and the first moment after the gap
// when they never do.
func inZone(wall time.Time, loc *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, loc)
	shows := func(t time.Time) bool {
		return t.Hour() == wall.Hour() && t.Minute() == wall.Minute() && t.Day() == wall.Day()
	}
	if !shows(t) {
		start, end := t.Add(-24 * time.Hour).ZoneBounds()
		for !end.IsZero() && end.Before(t.Add(24*time.Hour)) {
			if _, before := start.Zone(); !end.IsZero() {
				_, behind := end.Zone()
				if gap := time.Duration(behind-before) * time.Second; gap > 0 && within(wall, end, gap, loc) {
					return end
				}
			}
			start, end = end.ZoneBounds()
		}
		return t
	}
	for _, earlier := range []time.Duration{2 * time.Hour, time.Hour, 30 * time.Minute} {
		if e := t.Add(-earlier); shows(e) {
			return e
		}
	}
	return t
}

// within reports whether wall lies in the gap that ends where the clock at end shows the time it does.
func within(wall, end time.Time, gap time.Duration, loc *time.Location) bool {
	e := end.In(loc)
	shown := time.Date(e.Year(), e.Month(), e.Day(), e.Hour(), e.Minute(), e.Second(), 0, time.UTC)
	return !wall.Before(shown.Add(-gap)) && wall.Before(shown)
}
