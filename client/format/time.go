package format

import (
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// AppendTime formats a moment according to SLURM_TIME_FORMAT: "" and "standard" give 2027-01-02T03:04:05, "relative" omits what is
// clear from today, anything else is a strftime(3) format (squeue(1), ENVIRONMENT). unset is printed for no moment (0).
func (c *Context) AppendTime(b []byte, ns int64, unset string) []byte {
	if ns == 0 {
		return append(b, unset...)
	}
	t := time.Unix(0, ns).In(c.location())
	switch c.TimeFormat {
	case "", "standard":
		return t.AppendFormat(b, timespec.Layout)
	case "relative":
		return appendRelative(b, t, c.Now.In(c.location()))
	}
	return appendStrftime(b, c.TimeFormat, t)
}

func appendRelative(b []byte, t, now time.Time) []byte {
	day := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) }
	days := int(day(t).Sub(day(now)) / (24 * time.Hour))
	switch {
	case days == 0:
		return t.AppendFormat(b, "15:04:05")
	case days == 1:
		return t.AppendFormat(append(b, "Tomorr "...), "15:04")
	case days == -1:
		return t.AppendFormat(append(b, "Ystday "...), "15:04")
	case days > 1 && days < 7:
		return t.AppendFormat(b, "Mon 15:04")
	case t.Year() == now.Year():
		return t.AppendFormat(b, "2 Jan 15:04")
	}
	return t.AppendFormat(b, "2 Jan 2006")
}

// goLayouts are the conversions of strftime(3), C locale, that have a Go layout.
var goLayouts = [256]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'j': "002", 'Z': "MST", 'z': "-0700",
	'T': "15:04:05", 'R': "15:04", 'F': "2006-01-02", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06",
	'X': "15:04:05", 'r': "03:04:05 PM", 'k': "15", 'l': "3",
}

func appendStrftime(b []byte, spec string, t time.Time) []byte {
	for i := 0; i < len(spec); i++ {
		if spec[i] != '%' || i+1 == len(spec) {
			b = append(b, spec[i])
			continue
		}
		i++
		switch letter := spec[i]; {
		case goLayouts[letter] != "":
			b = t.AppendFormat(b, goLayouts[letter])
		case letter == 's':
			b = strconv.AppendInt(b, t.Unix(), 10)
		case letter == 'u':
			b = strconv.AppendInt(b, int64((t.Weekday()+6)%7)+1, 10)
		case letter == 'w':
			b = strconv.AppendInt(b, int64(t.Weekday()), 10)
		case letter == '%':
			b = append(b, '%')
		default:
			b = append(b, '%', letter)
		}
	}
	return b
}

// AppendStamp writes the line above a view for -l and -i: "Fri Nov 20 16:20:30 2026".
func (c *Context) AppendStamp(b []byte) []byte {
	return c.Now.In(c.location()).AppendFormat(b, "Mon Jan _2 15:04:05 2006")
}

// appendElapsed is timespec.Elapsed without the allocation, for the column that every row of squeue has.
func appendElapsed(b []byte, seconds int64) []byte {
	if seconds < 0 || seconds > 365*86400 {
		return append(b, timespec.Elapsed(seconds)...)
	}
	days, hours, minutes, secs := seconds/86400, seconds/3600%24, seconds/60%60, seconds%60
	if days > 0 {
		b = append(strconv.AppendInt(b, days, 10), '-')
	}
	switch {
	case days > 0:
		b = append(two(b, hours), ':')
		b = two(b, minutes)
	case hours > 0:
		b = append(strconv.AppendInt(b, hours, 10), ':')
		b = two(b, minutes)
	default:
		b = strconv.AppendInt(b, minutes, 10)
	}
	return two(append(b, ':'), secs)
}

func two(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
