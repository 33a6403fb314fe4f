package report

import (
	"fmt"
	"math"
	"strings"
)

// screen is the output device of a character chart.
type screen struct {
	width int
	color bool
	wide  bool // not limited to ASCII
}

// chartRows is the height of the chart.
const chartRows = 12

// appendChart draws the hours as columns of characters, with as many hours per column as the width requires.
func (s *series) appendChart(b []byte, on screen) []byte {
	top := 0.0
	for i := range s.slots {
		top = max(top, s.slots[i].total())
	}
	if top == 0 {
		return append(b, "No chart: no GPU records for this period.\n"...)
	}
	top = math.Ceil(top - 1e-6)
	label := len(fmt.Sprintf("%.0f", top))
	list, hours := s.merged(max(on.width-label-3, 10))
	rows := chartRows
	if top < chartRows {
		rows = int(top) * max(1, chartRows/2/int(top))
	}
	every := "hour by hour"
	if hours > 1 {
		every = fmt.Sprintf("a column is %d hours", hours)
	}
	b = fmt.Appendf(b, "%s, %s\n", s.what(), every)
	marks := ticks(top, rows)
	for row := rows - 1; row >= 0; row-- {
		b = fmt.Appendf(b, "%*s |", label, marks[row])
		last := ""
		for i := range list {
			b, last = on.put(b, last, list[i].at((float64(row)+0.5)*top/float64(rows)))
		}
		b = on.end(b, last)
	}
	b = fmt.Appendf(b, "%*s +%s\n", label, "0", strings.Repeat("-", len(list)))
	waits := strings.Builder{}
	some := false
	for i := range list {
		if list[i].waiting > 0.01 {
			waits.WriteByte('^')
			some = true
		} else {
			waits.WriteByte(' ')
		}
	}
	if some {
		b = fmt.Appendf(b, "%*s  %s\n", label, "", strings.TrimRight(waits.String(), " "))
	}
	b = fmt.Appendf(b, "%*s  %s\n", label, "", strings.TrimRight(days(list), " "))
	return on.legend(b, s, some)
}

// ticks are the labels of rows: at the top and in the middle.
func ticks(top float64, rows int) []string {
	marks := make([]string, rows)
	marks[rows-1] = fmt.Sprintf("%.0f", top)
	if half := top / 2; rows >= 6 && half == math.Trunc(half) {
		marks[rows/2-1] = fmt.Sprintf("%.0f", half)
	}
	return marks
}

// at returns the kind at a height of a column, kinds if there is none.
func (x *slot) at(height float64) int {
	if x.covered == 0 {
		return kinds
	}
	sum := 0.0
	for k, v := range x.gpus {
		if sum += v; height < sum {
			return k
		}
	}
	return kinds
}

func (on screen) put(b []byte, last string, k int) ([]byte, string) {
	r, ansi := ' ', ""
	if k < kinds {
		if r, ansi = kindOf[k].ascii, kindOf[k].ansi; on.wide {
			r = kindOf[k].rune
		}
	}
	if on.color && ansi != last {
		b = fmt.Appendf(b, "\x1b[0m")
		if ansi != "" {
			b = fmt.Appendf(b, "\x1b[%sm", ansi)
		}
		last = ansi
	}
	return append(b, string(r)...), last
}

func (on screen) end(b []byte, last string) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' && last == "" {
		b = b[:len(b)-1]
	}
	if last != "" {
		b = append(b, "\x1b[0m"...)
	}
	return append(b, '\n')
}

// days are the dates below the columns in which days begin, as many as fit.
func days(list []slot) string {
	line := []byte(strings.Repeat(" ", len(list)+12))
	room := 0
	for i := range list {
		x := &list[i]
		if i > 0 && x.start.YearDay() == list[i-1].start.YearDay() || i < room {
			continue
		}
		if i == 0 && len(list) > 1 && x.start.Hour() != 0 { // the first day is usually incomplete
			text := x.start.Format("15:04")
			copy(line[i:], "|"+text)
			room = i + len(text) + 2
			continue
		}
		text := "|" + x.start.Format("Jan 2")
		if i+len(text) > len(list)+8 {
			break
		}
		copy(line[i:], text)
		room = i + len(text) + 1
	}
	return string(line)
}

// legend explains the characters in use.
func (on screen) legend(b []byte, s *series, waited bool) []byte {
	sums, _, gap := s.sums()
	column := 0
	add := func(ansi, mark, name string) {
		size := len([]rune(mark)) + 1 + len(name) + 3
		if column > 0 && column+size > on.width {
			b = append(b, '\n')
			column = 0
		}
		if column > 0 {
			b = append(b, "   "...)
		}
		if on.color && ansi != "" {
			mark = "\x1b[" + ansi + "m" + mark + "\x1b[0m"
		}
		b = append(b, mark+" "+name...)
		column += size
	}
	for k := range kindOf {
		if sums[k] > 0 {
			mark := kindOf[k].ascii
			if on.wide {
				mark = kindOf[k].rune
			}
			add(kindOf[k].ansi, string(mark), kindOf[k].name)
		}
	}
	if waited {
		add("", "^", "jobs waited for GPUs")
	}
	if gap > 0.5 {
		add("", "(blank)", "not recorded")
	}
	return append(b, '\n')
}
