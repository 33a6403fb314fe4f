package accounts

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Hours are windows of the week: "Mon-Fri 08:00-20:00,Sat,Sun 10:00-14:00". A window that ends before it begins continues into the
// next day; its days are those on which it begins. A window without days applies every day. No windows at all means always.
type Hours []window

type window struct {
	days     [7]bool // by time.Weekday
	from, to int     // minutes of the day; to is greater than from, and beyond 24 hours if the window ends on the next day
}

const (
	dayMinutes = 24 * 60
	maxWindows = 100
)

// dayNames are the days as they are written, Monday first.
var dayNames = [...]string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// weekday converts an index of dayNames to a time.Weekday.
func weekday(i int) time.Weekday { return time.Weekday((i + 1) % 7) }

// ParseHours reads windows. A day without hours takes those of the next item that has some.
func ParseHours(text string) (h Hours, err error) {
	var days [7]bool
	pending := "" // days still without hours
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		words := strings.Fields(part)
		if len(words) == 0 && text == "" {
			return nil, nil
		}
		hours := ""
		if n := len(words); n > 0 && strings.Contains(words[n-1], ":") {
			hours, words = words[n-1], words[:n-1]
		}
		switch {
		case len(words) > 1 || len(words) == 0 && hours == "":
			return nil, fmt.Errorf("%.40q is not a time window; write Mon-Fri 08:00-20:00", part)
		case len(words) == 1 && !addDays(&days, words[0]):
			return nil, fmt.Errorf("%.40q are not days; write Mon-Fri, Sat or Sun", words[0])
		case hours == "":
			pending = words[0]
			continue
		}
		w := window{days: days}
		if w.from, w.to, err = parseSpan(hours); err != nil {
			return nil, err
		}
		if days == ([7]bool{}) {
			w.days = [7]bool{true, true, true, true, true, true, true}
		}
		h, days, pending = append(h, w), [7]bool{}, ""
	}
	switch {
	case pending != "":
		return nil, fmt.Errorf("%.40s has no hours; for the whole day write 00:00-24:00", pending)
	case len(h) > maxWindows:
		return nil, fmt.Errorf("there are %d windows, the limit is %d", len(h), maxWindows)
	}
	return h, nil
}

// addDays adds "Mon" or "Fri-Mon".
func addDays(days *[7]bool, word string) bool {
	first, last, ranged := strings.Cut(word, "-")
	if !ranged {
		last = first
	}
	at := func(name string) int {
		return slices.IndexFunc(dayNames[:], func(d string) bool { return strings.EqualFold(d, name) })
	}
	from, to := at(first), at(last)
	if from < 0 || to < 0 {
		return false
	}
	for i := from; ; i = (i + 1) % 7 {
		days[weekday(i)] = true
		if i == to {
			return true
		}
	}
}

// parseSpan reads "20:00-08:00".
func parseSpan(text string) (from, to int, err error) {
	first, last, _ := strings.Cut(text, "-")
	from, ok1 := parseMinute(first)
	to, ok2 := parseMinute(last)
	if !ok1 || !ok2 || from == dayMinutes || from == to {
		return 0, 0, fmt.Errorf("%.40q is not a time span; write 08:00-20:00, 20:00-08:00 or 00:00-24:00", text)
	}
	if to < from {
		to += dayMinutes
	}
	return from, to, nil
}

func parseMinute(text string) (int, bool) {
	hour, minute, _ := strings.Cut(text, ":")
	number := func(s string, least int) int {
		if len(s) < least || len(s) > 2 || strings.Trim(s, "0123456789") != "" {
			return dayMinutes + 1
		}
		n := 0
		for _, c := range s {
			n = 10*n + int(c-'0')
		}
		return n
	}
	h, m := number(hour, 1), number(minute, 2)
	return 60*h + m, m < 60 && 60*h+m <= dayMinutes
}

// String writes the windows in the form that ParseHours reads.
func (h Hours) String() string {
	var out []string
	for _, w := range h {
		end := w.to
		if end > dayMinutes {
			end -= dayMinutes
		}
		days := w.dayText()
		if days != "" {
			days += " "
		}
		out = append(out, fmt.Sprintf("%s%02d:%02d-%02d:%02d", days, w.from/60, w.from%60, end/60, end%60))
	}
	return strings.Join(out, ",")
}

// dayText formats the days of a window: "Mon-Fri", "Mon,Wed"; "" means every day.
func (w *window) dayText() string {
	var out []string
	for i := 0; i < len(dayNames); i++ {
		if !w.days[weekday(i)] {
			continue
		}
		first := i
		for i+1 < len(dayNames) && w.days[weekday(i+1)] {
			i++
		}
		switch i - first {
		case 6:
			return ""
		case 0:
			out = append(out, dayNames[first])
		default:
			out = append(out, dayNames[first]+"-"+dayNames[i])
		}
	}
	return strings.Join(out, ",")
}

// At reports whether t is within the hours, in its own time zone, and when that next changes: the zero time if never.
func (h Hours) At(t time.Time) (within bool, until time.Time) {
	if len(h) == 0 {
		return true, until
	}
	type span struct{ from, to time.Time }
	var spans []span
	var turns []time.Time
	year, month, day := t.Date()
	for n := -1; n <= 8; n++ { // a window from yesterday may still be open; 8 days ahead cover a whole week
		minute := func(m int) time.Time { return time.Date(year, month, day+n, 0, m, 0, 0, t.Location()) }
		for _, w := range h {
			if w.days[minute(dayMinutes/2).Weekday()] {
				s := span{minute(w.from), minute(w.to)}
				spans, turns = append(spans, s), append(turns, s.from, s.to)
			}
		}
	}
	at := func(t time.Time) bool {
		return slices.ContainsFunc(spans, func(s span) bool { return !t.Before(s.from) && t.Before(s.to) })
	}
	within = at(t)
	week := time.Date(year, month, day+8, 0, 0, 0, 0, t.Location())
	for _, turn := range slices.SortedFunc(slices.Values(turns), time.Time.Compare) {
		if turn.After(t) && turn.Before(week) && at(turn) != within {
			return within, turn
		}
	}
	return within, until
}
