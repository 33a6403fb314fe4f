package timespec

import (
	"fmt"
	"strings"
	"time"
)

// Layout is how Slurm prints a moment: local time, without a zone.
const Layout = "2006-01-02T15:04:05"

// Direction says which day is meant if a moment has none.
type Direction int

const (
	// Future is for --begin and --deadline: a clock time that has passed today means tomorrow, a day that has passed this year
	// means next year.
	Future Direction = iota
	// Past is for sacct -S and -E: a clock time means today, a day that is still to come this year means last year.
	Past
)

// MomentError describes an error in a moment and its position.
type MomentError struct {
	Text string
	Pos  int // offset in bytes, from 0
	Msg  string
}

func (e *MomentError) Error() string {
	return fmt.Sprintf("cannot read time %.80q: at character %d: %s", e.Text, e.Pos+1, e.Msg)
}

const momentForms = "write HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY], YYYY-MM-DD[THH:MM[:SS]], today, tomorrow, midnight, noon, " +
	"elevenses, fika, teatime or now[+count[seconds|minutes|hours|days|weeks]]"

// clockNames are the names of clock times, as hours.
var clockNames = map[string]int{"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}

var unitSeconds = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}

// maxShift is the largest offset of now+count: 100 years.
const maxShift = 100 * 366 * 86400

// moment is the state of the parser.
type moment struct {
	text string
	pos  int

	hasClock       bool
	hour, min, sec int

	hasDay, hasYear bool
	year            int
	month           time.Month
	day             int
}

// ParseMoment reads one of the forms of sbatch(1) --begin. A day and a clock time may be combined in either order, with a blank,
// '-' or 'T' between them ("12/25 10:00", "noon-tomorrow"), and are in loc. now+count counts seconds of real time. "uts" and a
// number are seconds since 1970. The result has whole seconds and is in loc. It depends on the arguments alone.
func ParseMoment(text string, now time.Time, loc *time.Location, dir Direction) (time.Time, error) {
	m := &moment{text: text}
	t, err := m.parse(now.In(loc).Truncate(time.Second), loc, dir)
	if err == nil && (t.Year() < minYear || t.Year() > maxYear) {
		return time.Time{}, m.fail(0, "a year is from %d to %d", minYear, maxYear)
	}
	return t, err
}

// minYear and maxYear bound the years in which every moment fits 64 bits of nanoseconds since 1970.
const minYear, maxYear = 1678, 2261

func (m *moment) parse(now time.Time, loc *time.Location, dir Direction) (time.Time, error) {
	m.blanks()
	if m.word("now") {
		return m.shift(now)
	}
	if m.word("uts") {
		return m.seconds(loc)
	}
	for {
		m.blanks()
		if m.hasClock || m.hasDay {
			m.skip("-T")
			m.blanks()
		}
		if m.pos == len(m.text) {
			break
		}
		if err := m.token(now); err != nil {
			return time.Time{}, err
		}
	}
	if !m.hasClock && !m.hasDay {
		return time.Time{}, m.fail(0, "it is empty; "+momentForms)
	}
	return m.resolve(now, dir)
}

func (m *moment) fail(pos int, format string, args ...any) error {
	return &MomentError{Text: m.text, Pos: pos, Msg: fmt.Sprintf(format, args...)}
}

func (m *moment) blanks() {
	for m.pos < len(m.text) && strings.IndexByte(" \t,", m.text[m.pos]) >= 0 {
		m.pos++
	}
}

// skip consumes one byte of set, unless it begins a word such as "today".
func (m *moment) skip(set string) {
	if m.pos == len(m.text) || strings.IndexByte(set, upper(m.text[m.pos])) < 0 {
		return
	}
	if next := m.pos + 1; m.text[m.pos] == '-' || next == len(m.text) || !letter(m.text[next]) {
		m.pos++
	}
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 32
	}
	return c
}

func letter(c byte) bool { return upper(c) >= 'A' && upper(c) <= 'Z' }

// word consumes w, in any case.
func (m *moment) word(w string) bool {
	end := m.pos + len(w)
	if end > len(m.text) || !strings.EqualFold(m.text[m.pos:end], w) {
		return false
	}
	m.pos = end
	return true
}

// digits consumes a run of at most max digits and returns its value and length.
func (m *moment) digits(max int) (value, n int) {
	for n < max && m.pos < len(m.text) && m.text[m.pos] >= '0' && m.text[m.pos] <= '9' {
		value = value*10 + int(m.text[m.pos]-'0')
		m.pos++
		n++
	}
	return value, n
}

func (m *moment) at(c byte) bool { return m.pos < len(m.text) && m.text[m.pos] == c }

// token reads one day or one clock time.
func (m *moment) token(now time.Time) error {
	start := m.pos
	for name, hour := range clockNames {
		if m.word(name) {
			return m.setClock(start, hour, 0, 0)
		}
	}
	switch {
	case m.word("today"):
		return m.setDay(start, now.Year(), now.Month(), now.Day(), true)
	case m.word("tomorrow"):
		t := now.AddDate(0, 0, 1)
		return m.setDay(start, t.Year(), t.Month(), t.Day(), true)
	}
	value, n := m.digits(6)
	switch {
	case n == 6 && !m.digit():
		return m.setDay(start, 2000+value%100, time.Month(value/10000), value/100%100, true)
	case n == 4 && m.at('-') && !m.clockBehind():
		return m.isoDay(start, value)
	case n == 4:
		return m.setDay(start, 0, time.Month(value/100), value%100, false)
	case (n == 1 || n == 2) && m.at(':'):
		return m.clock(start, value)
	case (n == 1 || n == 2) && (m.at('/') || m.at('.')):
		return m.slashDay(start, value)
	}
	return m.fail(start, "%s", momentForms)
}

// clockBehind reports whether "-HH:" follows, rather than the month after a year.
func (m *moment) clockBehind() bool {
	return m.pos+3 < len(m.text) && (m.text[m.pos+2] == ':' || m.text[m.pos+3] == ':')
}

// seconds reads the number after "uts", seconds since 1970: at least 1000000, which is on 12 January 1970.
func (m *moment) seconds(loc *time.Location) (time.Time, error) {
	start := m.pos
	value, _ := m.digits(11)
	if m.pos != len(m.text) || value < 1000000 {
		return time.Time{}, m.fail(start, "seconds since 1970 follow uts, 1000000 or more")
	}
	return time.Unix(int64(value), 0).In(loc), nil
}

func (m *moment) digit() bool {
	return m.pos < len(m.text) && m.text[m.pos] >= '0' && m.text[m.pos] <= '9'
}

// isoDay reads "-MM-DD" after a year.
func (m *moment) isoDay(start, year int) error {
	m.pos++
	month, n := m.digits(2)
	if n != 2 || !m.at('-') {
		return m.fail(start, "a day with a year is written YYYY-MM-DD")
	}
	m.pos++
	day, n := m.digits(2)
	if n != 2 || m.digit() {
		return m.fail(start, "a day with a year is written YYYY-MM-DD")
	}
	return m.setDay(start, year, time.Month(month), day, true)
}

// slashDay reads "/DD[/YY]" after a month; '.' is allowed instead of '/'.
func (m *moment) slashDay(start, month int) error {
	sep := m.text[m.pos]
	m.pos++
	day, n := m.digits(2)
	if n == 0 {
		return m.fail(start, "a day is written MM/DD or MM/DD/YY")
	}
	if !m.at(sep) {
		return m.setDay(start, 0, time.Month(month), day, false)
	}
	m.pos++
	year, n := m.digits(2)
	if n != 2 || m.digit() {
		return m.fail(start, "the year has two digits in MM/DD/YY; with four write YYYY-MM-DD")
	}
	return m.setDay(start, 2000+year, time.Month(month), day, true)
}

// clock reads ":MM[:SS][AM|PM]" after an hour.
func (m *moment) clock(start, hour int) error {
	var parts [2]int
	for i := 0; i < 2 && m.at(':'); i++ {
		m.pos++
		value, n := m.digits(2)
		if n != 2 || m.digit() {
			return m.fail(m.pos-n, "minutes and seconds have two digits: HH:MM[:SS]")
		}
		if value > 59 {
			return m.fail(m.pos-n, "minutes and seconds end at 59")
		}
		parts[i] = value
	}
	before := m.pos
	m.blanks()
	am, pm := m.word("am"), m.word("pm")
	switch {
	case !am && !pm:
		m.pos = before
	case hour > 12:
		return m.fail(start, "an hour with AM or PM is at most 12")
	case am && hour == 12:
		hour = 0
	case pm && hour < 12:
		hour += 12
	}
	return m.setClock(start, hour, parts[0], parts[1])
}

func (m *moment) setClock(start, hour, minute, sec int) error {
	if m.hasClock {
		return m.fail(start, "a second clock time; give one")
	}
	if hour > 23 {
		return m.fail(start, "an hour is at most 23; 00:00 is midnight")
	}
	m.hasClock, m.hour, m.min, m.sec = true, hour, minute, sec
	return nil
}

func (m *moment) setDay(start, year int, month time.Month, day int, hasYear bool) error {
	if m.hasDay {
		return m.fail(start, "a second day; give one")
	}
	leap := year
	if !hasYear {
		leap = 2000 // February 29 is checked when the year is known
	}
	if month < 1 || month > 12 {
		return m.fail(start, "there is no month %d", int(month))
	}
	if last := time.Date(leap, month+1, 0, 0, 0, 0, 0, time.UTC).Day(); day < 1 || day > last {
		return m.fail(start, "%s has no day %d", month, day)
	}
	m.hasDay, m.hasYear, m.year, m.month, m.day = true, hasYear, year, month, day
	return nil
}

// shift reads "[+-N[unit]]" after "now".
func (m *moment) shift(now time.Time) (time.Time, error) {
	m.blanks()
	if m.pos == len(m.text) {
		return now, nil
	}
	sign := int64(1)
	switch {
	case m.at('-'):
		sign = -1
	case !m.at('+'):
		return time.Time{}, m.fail(m.pos, "only +count or -count can follow now")
	}
	m.pos++
	m.blanks()
	start := m.pos
	count, n := m.digits(18)
	if n == 0 {
		return time.Time{}, m.fail(start, "a number is missing")
	}
	m.blanks()
	unit := strings.TrimSuffix(strings.ToLower(strings.TrimRight(m.text[m.pos:], " \t")), "s")
	seconds, ok := unitSeconds[unit]
	if unit == "" {
		seconds, ok = 1, true
	}
	if !ok {
		return time.Time{}, m.fail(m.pos, "the units are seconds, minutes, hours, days and weeks, in full")
	}
	if int64(count) > maxShift/seconds {
		return time.Time{}, m.fail(start, "that is more than 100 years away")
	}
	return now.Add(time.Duration(sign*int64(count)*seconds) * time.Second), nil
}

// resolve fills in the parts that the text leaves out.
func (m *moment) resolve(now time.Time, dir Direction) (time.Time, error) {
	loc := now.Location()
	if !m.hasDay {
		t := time.Date(now.Year(), now.Month(), now.Day(), m.hour, m.min, m.sec, 0, loc)
		if dir == Future && t.Before(now) {
			t = time.Date(now.Year(), now.Month(), now.Day()+1, m.hour, m.min, m.sec, 0, loc)
		}
		return t, nil
	}
	year := m.year
	if !m.hasYear {
		year = now.Year()
		t := time.Date(year, m.month, m.day, m.hour, m.min, m.sec, 0, loc)
		switch {
		case dir == Future && t.Before(now):
			year++
		case dir == Past && t.After(now):
			year--
		}
	}
	t := time.Date(year, m.month, m.day, m.hour, m.min, m.sec, 0, loc)
	if m.month == time.February && m.day == 29 && time.Date(year, 3, 0, 0, 0, 0, 0, time.UTC).Day() != 29 {
		return time.Time{}, m.fail(0, "February %d has no day 29", year)
	}
	return t, nil
}
