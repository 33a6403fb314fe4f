package tres

import (
	"fmt"
	"strconv"
	"strings"
)

// Gres is one generic resource of a request or a node: name[:type][:count].
type Gres struct {
	Name      string // "gpu", "shard", "mps"
	Type      string // "a100", "a100_3g.20gb"; empty: any
	Count     uint64
	NoConsume bool // only in slurm.conf: unlimited
}

// String formats the resource with its count: "gpu:a100:2".
func (g Gres) String() string {
	s := g.Name
	if g.Type != "" {
		s += ":" + g.Type
	}
	if g.NoConsume {
		s += ":no_consume"
	}
	return s + ":" + strconv.FormatUint(g.Count, 10)
}

// TresName is the name of the tracked resource, with its type: "gres/gpu:a100".
func (g Gres) TresName() string {
	if g.Type == "" {
		return "gres/" + g.Name
	}
	return "gres/" + g.Name + ":" + g.Type
}

// FormatGres formats a list with prefix before each element: "gres:" for Slurm 22.05's TresPerNode, "gres/" for that of later
// versions, "" for a node's Gres.
func FormatGres(list []Gres, prefix string) string {
	var b strings.Builder
	for i, g := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(prefix)
		b.WriteString(g.String())
	}
	return b.String()
}

// gresForms ends every error about a list.
const gresForms = "write name[:type][:count], such as gpu:2 or gpu:a100:2"

// ParseGres reads the value of --gres: name[:type][:count] separated by commas, each optionally after "gres:" or "gres/", as Slurm
// prints it. The default count is 1. "none" is the empty list. A resource may not be repeated, nor appear with and without a type.
func ParseGres(s string) ([]Gres, error) {
	if s == "" || strings.EqualFold(s, "none") {
		return nil, nil
	}
	return parseGres(s, gresForms, func(fields []string) (Gres, string) {
		if name, ok := strings.CutPrefix(fields[0], "gres/"); ok {
			fields[0] = name
		} else if fields[0] == "gres" {
			fields = fields[1:]
		}
		return fromFields(fields)
	})
}

// ParseNodeGres reads Gres of a NodeName line in slurm.conf: name[:type][:no_consume][:count] separated by commas.
func ParseNodeGres(s string) ([]Gres, error) {
	if s == "" || strings.EqualFold(s, "(null)") {
		return nil, nil
	}
	return parseGres(s, gresForms, func(fields []string) (Gres, string) {
		noConsume := false
		for i, f := range fields {
			if i > 0 && f == "no_consume" {
				fields = append(fields[:i:i], fields[i+1:]...)
				noConsume = true
				break
			}
		}
		g, why := fromFields(fields)
		g.NoConsume = noConsume
		return g, why
	})
}

// ParseGPUs reads the value of --gpus, --gpus-per-node, --gpus-per-task and --gpus-per-socket: [type:]count separated by commas, or
// a type alone, which means one.
func ParseGPUs(s string) ([]Gres, error) {
	return parseGres(s, "write [type:]count, such as 2 or a100:2", func(fields []string) (Gres, string) {
		if len(fields) > 2 {
			return Gres{}, "it has too many ':'"
		}
		return fromFields(append([]string{"gpu"}, fields...))
	})
}

// MixedTypesError reports a list with the same resource with and without a type.
type MixedTypesError struct{ error }

// parseGres splits s and passes each element to read, which returns the reason if it rejects one.
func parseGres(s, forms string, read func([]string) (Gres, string)) ([]Gres, error) {
	fail := func(part, why string) ([]Gres, error) {
		return nil, fmt.Errorf("cannot read generic resources %.80q: %.40q: %s; %s", s, part, why, forms)
	}
	if len(s) > maxText || strings.Count(s, ",") >= maxItems {
		return fail("", fmt.Sprintf("more than %d elements or %d bytes", maxItems, maxText))
	}
	var list []Gres
	for _, part := range strings.Split(s, ",") {
		g, why := read(strings.Split(part, ":"))
		if why != "" {
			return fail(part, why)
		}
		for _, other := range list {
			switch {
			case other.Name != g.Name:
			case other.Type == g.Type:
				return fail(part, "it is given twice")
			case other.Type == "" || g.Type == "":
				_, err := fail(part, g.Name+" appears in the list with and without a type")
				return nil, &MixedTypesError{err}
			}
		}
		list = append(list, g)
	}
	return list, nil
}

// fromFields reads name, [type] and [count].
func fromFields(f []string) (Gres, string) {
	if len(f) == 0 || len(f) > 3 {
		return Gres{}, "it has too few or too many ':'"
	}
	g := Gres{Name: f[0], Count: 1}
	for _, field := range f {
		if field == "" {
			return g, "a part of it is empty"
		}
		if strings.ContainsFunc(field, notInGres) {
			return g, fmt.Sprintf("%.40q has a character that is not allowed in a name or a count", field)
		}
	}
	if _, err := parseCount(f[0]); err == nil {
		return g, "the name of the resource is missing"
	}
	last := f[len(f)-1]
	count, err := parseCount(last)
	switch {
	case len(f) == 3 && err != nil:
		return g, fmt.Sprintf("%.40q is not a count", last)
	case len(f) == 3:
		g.Type, g.Count = f[1], count
	case len(f) == 2 && err != nil && last[0] == '-':
		return g, "a count cannot be negative"
	case len(f) == 2 && err != nil && strings.Trim(last, "0123456789") == "":
		return g, "the count is too large"
	case len(f) == 2 && err != nil:
		g.Type = last
	case len(f) == 2:
		g.Count = count
	}
	return g, ""
}

func notInGres(r rune) bool {
	return r == '/' || r == '@' || r == ':' || notInName(r)
}
