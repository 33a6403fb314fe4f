// Package timespec reads and writes durations ("1-02:30:00", "90", "UNLIMITED") and moments ("teatime", "now+1hour",
// "2027-01-02T03:04").
//
// Durations follow sbatch(1) --time, moments sbatch(1) --begin and sacct(1) "TIME FORMATS". Where Slurm 22.05 misreads a malformed
// text ("-5" as 8,000 years, 30 February as 2 March), this package returns an error.
package timespec

import (
	"fmt"
	"strconv"
	"strings"
)

// Unlimited, in seconds or minutes, means no limit.
const Unlimited int64 = -1

// maxMinutes is the longest duration that can be written as a number: 136 years, the most that fits Slurm's 32 bits of seconds.
const maxMinutes = 71582787

// durationForms ends every error about a duration.
const durationForms = "write minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED"

func durationError(s, why string) error {
	return fmt.Errorf("cannot read duration %.80q: %s; %s", s, why, durationForms)
}

// ParseSeconds reads a duration and returns seconds, or Unlimited for UNLIMITED, INFINITE (in any case) and -1. The forms are m,
// m:s, h:m:s, d-h, d-h:m and d-h:m:s; a part may exceed its usual range ("90:00", "1-25").
func ParseSeconds(s string) (int64, error) {
	switch strings.ToUpper(s) {
	case "UNLIMITED", "INFINITE", "-1":
		return Unlimited, nil
	case "":
		return 0, durationError(s, "it is empty")
	}
	clock, units := s, [...]int64{60, 1, 0}
	total := int64(0)
	if days, rest, ok := strings.Cut(s, "-"); ok {
		n, why := number(days)
		if why != "" {
			return 0, durationError(s, why)
		}
		total, clock, units = n*86400, rest, [...]int64{3600, 60, 1}
	} else if strings.Count(s, ":") == 2 {
		units = [...]int64{3600, 60, 1}
	}
	for i, part := range strings.Split(clock, ":") {
		if i == len(units) || units[i] == 0 {
			return 0, durationError(s, "it has too many parts")
		}
		n, why := number(part)
		if why != "" {
			return 0, durationError(s, why)
		}
		total += n * units[i]
	}
	if total > maxMinutes*60 {
		return 0, durationError(s, fmt.Sprintf("it is longer than %d minutes (136 years)", maxMinutes))
	}
	return total, nil
}

// ParseMinutes reads a duration and returns minutes, or Unlimited. Seconds are rounded up, as in slurm.conf(5) MaxTime and
// sbatch(1) --time. Some of Slurm's options use 0 for no limit; the caller decides.
func ParseMinutes(s string) (int64, error) {
	sec, err := ParseSeconds(s)
	if err != nil || sec == Unlimited {
		return sec, err
	}
	return (sec + 59) / 60, nil
}

// number reads one part of a duration; why is empty if it is well formed.
func number(s string) (n int64, why string) {
	if s == "" {
		return 0, "a number is missing"
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Sprintf("%q is not a number", s[i:min(len(s), i+8)])
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n <= maxMinutes*60 {
		return n, ""
	}
	return 0, fmt.Sprintf("%.20s is too large", s)
}

// year is the longest time, in seconds, that squeue prints.
const year = 365 * 86400

// Elapsed formats seconds as squeue prints TIME and sinfo TIMELIMIT: "0:05", "30:00", "1:00:00", "1-02:03:04". Unlimited is
// "UNLIMITED"; other negative values and values above a year are "INVALID", as in squeue.
func Elapsed(seconds int64) string {
	switch {
	case seconds == Unlimited:
		return "UNLIMITED"
	case seconds < 0 || seconds > year:
		return "INVALID"
	}
	d, h, m, s := seconds/86400, seconds/3600%24, seconds/60%60, seconds%60
	switch {
	case d > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", d, h, m, s)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// Clock formats seconds as scontrol and sacct do: "00:30:00", "1-02:03:04". Unlimited is "UNLIMITED"; other negative values are
// "INVALID".
func Clock(seconds int64) string {
	switch {
	case seconds == Unlimited:
		return "UNLIMITED"
	case seconds < 0:
		return "INVALID"
	}
	d, h, m, s := seconds/86400, seconds/3600%24, seconds/60%60, seconds%60
	if d > 0 {
		return fmt.Sprintf("%d-%02d:%02d:%02d", d, h, m, s)
	}
	return fmt.Sprintf("%02d:%02d:%02d", h, m, s)
}

// ClockMinutes is Clock for a number of minutes or Unlimited.
func ClockMinutes(minutes int64) string {
	if minutes == Unlimited {
		return Clock(Unlimited)
	}
	return Clock(minutes * 60)
}
