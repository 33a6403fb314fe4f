package timespec

import (
	"fmt"
	"strconv"
	"time"
)

// FormatUnix formats a moment as seconds since 1970. Commands send moments in this form, because they have read them in the user's
// time zone, which the controller does not know.
func FormatUnix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// ParseUnix reads the output of FormatUnix. The result is in UTC.
func ParseUnix(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	t := time.Unix(seconds, 0).UTC()
	if err != nil || t.Year() < minYear || t.Year() > maxYear {
		return time.Time{}, fmt.Errorf("cannot read time %.80q: write seconds since 1970, of the years %d to %d", text, minYear, maxYear)
	}
	return t, nil
}

// layoutUTC is the format of a moment within a text.
const layoutUTC = "2006-01-02T15:04:05Z"

// FormatUTC formats a moment for a message of the controller, in UTC. Commands convert it to the user's time zone: LocalTimes.
func FormatUTC(ns int64) string { return time.Unix(0, ns).UTC().Format(layoutUTC) }

// LocalTimes replaces the moments that FormatUTC wrote into a text by local time in zone.
func LocalTimes(text string, zone *time.Location) string {
	var out []byte
	done := 0
	for at := len(layoutUTC); at <= len(text); at++ {
		from := at - len(layoutUTC)
		if text[at-1] != 'Z' || from < done {
			continue
		}
		if t, err := time.Parse(layoutUTC, text[from:at]); err == nil {
			out = t.In(zone).AppendFormat(append(out, text[done:from]...), Layout)
			done = at
		}
	}
	if done == 0 {
		return text
	}
	return string(append(out, text[done:]...))
}
