package hostlist

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// name is a host name split before its trailing number.
type name struct {
	prefix string
	number uint64
	width  int // digits as written; 0 if the name does not end in a number
}

// padded reports whether the number was written with leading zeros.
func (n name) padded() bool { return n.width > digits(n.number) }

func digits(n uint64) int {
	w := 1
	for ; n >= 10; n /= 10 {
		w++
	}
	return w
}

// split cuts s. A number too long for a uint64 stays part of the text.
func split(s string) name {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	if i == len(s) || len(s)-i > maxDigits {
		return name{prefix: s}
	}
	n, err := strconv.ParseUint(s[i:], 10, 64)
	if err != nil {
		return name{prefix: s}
	}
	return name{prefix: s[:i], number: n, width: len(s) - i}
}

// follows reports whether n continues a range that ends in last and whose numbers are printed with the given width.
func (n name) follows(last name, width int) bool {
	return last.width > 0 && n.width > 0 && n.prefix == last.prefix &&
		n.number == last.number+1 && n.width == max(width, digits(n.number))
}

// Fold writes names as one host list, in the given order and with repetitions, as `scontrol show hostlist` does: neighbours that
// count up become a range, neighbours with the same prefix share one bracket. Empty names are dropped. Expand reverses Fold.
func Fold(names []string) string {
	cut := make([]name, 0, len(names))
	for _, s := range names {
		if s != "" {
			cut = append(cut, split(s))
		}
	}
	return fold(cut)
}

// FoldSorted is Fold after sorting as `scontrol show hostlistsorted` does.
// Repeated names are kept. The argument is not changed.
func FoldSorted(names []string) string {
	cut := make([]name, 0, len(names))
	pads := map[string][]int{} // by prefix: the widths of its padded numbers
	for _, s := range names {
		if s == "" {
			continue
		}
		n := split(s)
		cut = append(cut, n)
		if n.padded() && !slices.Contains(pads[n.prefix], n.width) {
			pads[n.prefix] = append(pads[n.prefix], n.width)
		}
	}
	slices.SortStableFunc(cut, func(a, b name) int {
		return cmp.Or(
			natural(a.prefix, b.prefix),
			cmp.Compare(a.prefix, b.prefix), // "03b" and "3b" are the same number
			cmp.Compare(a.class(pads), b.class(pads)),
			cmp.Compare(a.number, b.number),
		)
	})
	return fold(cut)
}

// class is the width of n within a range: n8 and n10 can share a range, and so can n08 and n10, but not n8 and n08. Names without a
// number come first.
func (n name) class(pads map[string][]int) int {
	if n.width == 0 {
		return -1
	}
	if n.padded() {
		return n.width
	}
	class := 0
	for _, w := range pads[n.prefix] {
		if w <= n.width {
			class = max(class, w)
		}
	}
	return class
}

func fold(names []name) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		end := i + 1
		for end < len(names) && names[i].width > 0 && names[end].width > 0 && names[end].prefix == names[i].prefix {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		writeGroup(&b, names[i:end])
		i = end
	}
	return b.String()
}

// writeGroup writes names with one prefix: "n7", "n[1-3,5]".
func writeGroup(b *strings.Builder, group []name) {
	b.WriteString(group[0].prefix)
	if group[0].width == 0 {
		return
	}
	if len(group) == 1 {
		b.Write(appendNumber(nil, group[0].number, group[0].width))
		return
	}
	b.WriteByte('[')
	for i := 0; i < len(group); {
		end := i + 1
		for end < len(group) && group[end].follows(group[end-1], group[i].width) {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(appendNumber(nil, group[i].number, group[i].width))
		if end-i > 1 {
			b.WriteByte('-')
			b.Write(appendNumber(nil, group[end-1].number, group[i].width))
		}
		i = end
	}
	b.WriteByte(']')
}

// Compare orders names naturally: n2 before n10, a9b1 before a10b1. It is a total order: names that differ only in zeros are
// ordered by length.
func Compare(a, b string) int {
	return cmp.Or(natural(a, b), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// natural compares runs of digits by value and all other text by byte.
func natural(a, b string) int {
	for a != "" && b != "" {
		da, db := leadingDigits(a), leadingDigits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}
