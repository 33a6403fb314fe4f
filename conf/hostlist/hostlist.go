// Package hostlist reads, counts, expands and folds Slurm host lists such as "n[001-010],g[1-2],login".
//
// The grammar is that of slurm.conf(5), "NODE CONFIGURATION", and of the output of `scontrol show hostnames` and `scontrol show
// hostlist`:
//
//	list   = entry { ("," | blank) entry }
//	entry  = name | { text "[" range { "," range } "]" }
//	range  = number [ "-" number ]
//
// The leading zeros of a range's first number set its width, the leftmost bracket varies slowest, and nothing may follow the last
// bracket. Where Slurm silently reads something other than the text ("n[1-", "n[1 - 2]"), this package returns an error that names
// the character.
package hostlist

import (
	"fmt"
	"slices"
	"strconv"
)

// Limit is the maximum number of names in a list. A list is counted before it is expanded, so a hostile one costs no memory.
const Limit = 65536

const (
	maxText   = 4 << 20 // bytes of one list: Limit names of 64 bytes
	maxName   = 255     // bytes of one name, as in POSIX HOST_NAME_MAX
	maxDigits = 18      // digits of one number, so that it fits an int64
)

// SyntaxError describes an error in a host list and its position.
type SyntaxError struct {
	Text string // the whole list
	Pos  int    // offset in bytes, from 0
	Msg  string // the error and a remedy
}

func (e *SyntaxError) Error() string {
	if len(e.Text) > 80 {
		return fmt.Sprintf("cannot read hostlist: at character %d: %s", e.Pos+1, e.Msg)
	}
	return fmt.Sprintf("cannot read hostlist %q: at character %d: %s", e.Text, e.Pos+1, e.Msg)
}

// LimitError reports a list of more than Limit names.
type LimitError struct {
	Count uint64 // number of names; a lower bound
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("cannot expand hostlist: it expands to at least %d names, the limit is %d", e.Count, Limit)
}

// span is one range within a bracket. Width is that of its first number.
type span struct {
	lo, hi uint64
	width  int
}

// part is literal text and, if there is one, the bracket after it.
type part struct {
	text  string
	spans []span
}

// entry is one element of the list.
type entry []part

func (p part) count() uint64 {
	if p.spans == nil {
		return 1
	}
	var n uint64
	for _, s := range p.spans {
		n = min(n+(s.hi-s.lo+1), Limit+1)
	}
	return n
}

func (e entry) count() uint64 {
	n := uint64(1)
	for _, p := range e {
		n = min(n*p.count(), Limit+1)
	}
	return n
}

// size is the length of the longest name in e.
func (e entry) size() int {
	n := 0
	for _, p := range e {
		widest := 0
		for _, s := range p.spans {
			widest = max(widest, s.width, digits(s.hi))
		}
		n += len(p.text) + widest
	}
	return n
}

// Count returns the number of names in s, repetitions included. Its memory use does not depend on that number. The error is a
// *SyntaxError or, above Limit, a *LimitError.
func Count(s string) (int, error) {
	entries, err := parse(s)
	if err != nil {
		return 0, err
	}
	return count(entries)
}

func count(entries []entry) (int, error) {
	var n uint64
	for _, e := range entries {
		if n += e.count(); n > Limit {
			return 0, &LimitError{Count: n}
		}
	}
	return int(n), nil
}

// Expand returns the names in s in the order written, repetitions included. The empty list has no names. Errors are those of Count.
func Expand(s string) ([]string, error) {
	entries, err := parse(s)
	if err != nil {
		return nil, err
	}
	n, err := count(entries)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, n)
	for _, e := range entries {
		names = e.expand(names)
	}
	return names, nil
}

// expand appends the names of e. As in Slurm the last bracket varies fastest, then the first, then the others from left to right:
// a[1-2]b[1-2]c[1-2] is a1b1c1, a1b1c2, a2b1c1, a2b1c2, a1b2c1, …
func (e entry) expand(names []string) []string {
	var brackets []int // indices of e, slowest first
	for i := range e {
		if e[i].spans != nil {
			brackets = append(brackets, i)
		}
	}
	if n := len(brackets) - 1; n > 1 {
		slices.Reverse(brackets[:n])
	}
	var b []byte
	chosen := make([]number, len(e))
	var choose func(open []int)
	choose = func(open []int) {
		if len(open) == 0 {
			b = b[:0]
			for i := range e {
				if b = append(b, e[i].text...); e[i].spans != nil {
					b = appendNumber(b, chosen[i].value, chosen[i].width)
				}
			}
			names = append(names, string(b))
			return
		}
		for _, s := range e[open[0]].spans {
			for n := s.lo; n <= s.hi; n++ {
				chosen[open[0]] = number{n, s.width}
				choose(open[1:])
			}
		}
	}
	choose(brackets)
	return names
}

// number is a number in a bracket and the number of its digits.
type number struct {
	value uint64
	width int
}

func appendNumber(b []byte, n uint64, width int) []byte {
	for limit, w := uint64(10), 1; w < width; limit, w = limit*10, w+1 {
		if n < limit {
			b = append(b, '0')
		}
	}
	return strconv.AppendUint(b, n, 10)
}

// Split splits a list at the commas and blanks outside brackets, and checks nothing else. It is for lists whose elements another
// parser reads, such as NodeAddr or a list of job ids.
func Split(s string) []string {
	var out []string
	depth, start := 0, 0
	cut := func(end int) {
		if end > start {
			out = append(out, s[start:end])
		}
		start = end + 1
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth = max(0, depth-1)
		case depth == 0 && separates(c):
			cut(i)
		}
	}
	cut(len(s))
	return out
}

func separates(c byte) bool { return c == ',' || c == ' ' || c == '\t' || c == '\n' }
