package timespec

import (
	"fmt"
	"strconv"
	"time"
)

// FormatUnix writes a moment as seconds since 1970. Commands send moments in this form: they have been read in the time zone of the user,
// which the controller does not know.
func FormatUnix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// ParseUnix reads what FormatUnix writes. The result is in UTC.
func ParseUnix(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	t := time.Unix(seconds, 0).UTC()
	if err != nil || t.Year() < minYear || t.Year() > maxYear {
		return time.Time{}, fmt.Errorf("cannot read time %.80q: write seconds since 1970, of the years %d to %d", text, minYear, maxYear)
	}
	return t, nil
}
