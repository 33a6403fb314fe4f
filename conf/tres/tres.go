package tres

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxItems bounds the elements of one list, maxText its length.
const (
	maxItems = 1024
	maxText  = 64 << 10
)

// Item is one trackable resource. Name is in Slurm's spelling: "cpu", "mem",
// "node", "billing", "gres/gpu", "gres/gpu:a100", "license/matlab". Count is in
// MiB for mem and a plain number otherwise.
type Item struct {
	Name  string
	Count uint64
}

// List is a list of trackable resources in the order in which they are printed.
type List []Item

// order of the resources that every cluster has; others follow as given.
var order = map[string]int{"cpu": 1, "mem": 2, "energy": 3, "node": 4, "billing": 5, "fs/disk": 6, "vmem": 7, "pages": 8}

// kinds are the classes of resources whose members have names.
var kinds = []string{"gres/", "license/", "bb/", "fs/", "ic/"}

// Parse reads "cpu=4,mem=1.50G,node=1,gres/gpu:a100=2" in any order. The empty text is an empty list. An unknown or repeated name
// is an error.
func Parse(s string) (List, error) {
	pairs, err := pairs(s)
	if err != nil {
		return nil, err
	}
	var l List
	for _, p := range pairs {
		var n uint64
		if p.name == "mem" || p.name == "vmem" {
			n, err = parseTresMiB(p.value)
		} else if n, err = parseCount(p.value); err != nil {
			err = fmt.Errorf("%s: %w", p.name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read TRES %.80q: %w", s, err)
		}
		l = append(l, Item{p.name, n})
	}
	return l.sorted(), nil
}

type pair struct{ name, value string }

// pairs splits s at its commas and checks the names.
func pairs(s string) ([]pair, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxText || strings.Count(s, ",") >= maxItems {
		return nil, fmt.Errorf("cannot read TRES: more than %d elements or %d bytes", maxItems, maxText)
	}
	var out []pair
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("cannot read TRES %.80q: %.40q has no '='; write name=count", s, part)
		}
		name, ok = canonical(name)
		if !ok {
			return nil,
				fmt.Errorf(
					"cannot read TRES %.80q: unknown resource %.40q; there are cpu, mem, energy, node, billing, fs/disk, vmem, pages, "+
						"gres/NAME[:TYPE] and license/NAME", s, name)
		}
		if slices.ContainsFunc(out, func(p pair) bool { return p.name == name }) {
			return nil, fmt.Errorf("cannot read TRES %.80q: %s is given twice", s, name)
		}
		out = append(out, pair{name, value})
	}
	return out, nil
}

// canonical returns Slurm's spelling of a resource's name: only the part before the slash is case-insensitive.
func canonical(name string) (string, bool) {
	lower := strings.ToLower(name)
	if order[lower] != 0 {
		return lower, true
	}
	for _, k := range kinds {
		if rest := name[min(len(k), len(name)):]; strings.HasPrefix(lower, k) && rest != "" && !strings.ContainsFunc(rest, notInName) {
			return k + rest, true
		}
	}
	return name, false
}

func notInName(r rune) bool {
	return !(r == '_' || r == '-' || r == '.' || r == ':' || r == '/' || r == '@' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
		r >= 'A' && r <= 'Z')
}

func (l List) sorted() List {
	rank := func(i Item) int { return cmp.Or(order[i.Name], len(order)+1) }
	slices.SortStableFunc(l, func(a, b Item) int { return cmp.Compare(rank(a), rank(b)) })
	return l
}

// Get returns the count of one resource, 0 if it is not in the list.
func (l List) Get(name string) uint64 {
	for _, i := range l {
		if i.Name == name {
			return i.Count
		}
	}
	return 0
}

// With returns a copy in which name has the given count; 0 removes it.
func (l List) With(name string, count uint64) List {
	out := slices.DeleteFunc(slices.Clone(l), func(i Item) bool { return i.Name == name })
	if count > 0 {
		out = append(out, Item{name, count})
	}
	return out.sorted()
}

// String formats the list as scontrol and sacct do.
func (l List) String() string {
	var b strings.Builder
	for n, i := range l {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(i.Name)
		b.WriteByte('=')
		if i.Name == "mem" || i.Name == "vmem" {
			b.WriteString(FormatMiB(i.Count))
		} else {
			b.WriteString(strconv.FormatUint(i.Count, 10))
		}
	}
	return b.String()
}

// parseCount reads a number with an optional suffix K, M, G, T or P, powers of
// 1024.
func parseCount(s string) (uint64, error) {
	digits, unit := cutDigits(s)
	power, ok := power1024(unit)
	if digits == "" || !ok {
		return 0, fmt.Errorf("cannot read count %.40q; write a whole number, with K, M, G, T or P where that helps", s)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > 1<<62>>(10*power) {
		return 0, fmt.Errorf("cannot read count %.40q: it is too large", s)
	}
	return n << (10 * power), nil
}

// Weight is one element of TRESBillingWeights or PriorityWeightTRES: the weight of one MiB of memory, or of one unit of any other
// resource.
type Weight struct {
	Name  string // as in Item
	Value float64
}

// ParseWeights reads "CPU=1.0,Mem=0.25G,GRES/gpu=2.0". A suffix makes the weight apply per that unit: Mem=0.25G is a quarter per
// GiB. Weights may be negative.
func ParseWeights(s string) ([]Weight, error) {
	pairs, err := pairs(s)
	if err != nil {
		return nil, err
	}
	var out []Weight
	for _, p := range pairs {
		number := strings.TrimRight(p.value, suffixes+strings.ToLower(suffixes))
		power, ok := power1024(p.value[len(number):])
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || !ok || value != value || value > 1e18 || value < -1e18 {
			return nil, fmt.Errorf("cannot read TRES weights %.80q: the weight of %s is %.40q; write a number such as 1.0 or 0.25G", s,
				p.name, p.value)
		}
		if power > 0 && (p.name == "mem" || p.name == "vmem" || strings.HasPrefix(p.name, "bb/")) {
			power -= 2 // their base unit is the MiB
		}
		for ; power > 0; power-- {
			value /= 1024
		}
		for ; power < 0; power++ {
			value *= 1024
		}
		out = append(out, Weight{p.name, value})
	}
	return out, nil
}
