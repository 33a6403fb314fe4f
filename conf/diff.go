package conf

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// atStart are the keys that take effect only when a daemon starts, by their name in `scontrol show config`.
var atStart = map[string]string{"ClusterName": "sluice-ctld", "SlurmUser": "sluice-ctld", "SlurmctldPort": "sluice-ctld",
	"StateSaveLocation": "sluice-ctld", "SlurmctldPidFile": "sluice-ctld", "SlurmdPidFile": "sluice-noded"}

// Diff describes the differences of to from from, one per line: keys first, then nodes, partitions, generic resources and switches.
// Nodes with the same difference share a line.
func Diff(from, to *Config) []string {
	out := diffPairs(from.Pairs(Runtime{}), to.Pairs(Runtime{}), "")
	out = append(out, diffPairs(from.CgroupPairs(), to.CgroupPairs(), "cgroup.conf ")...)
	out = append(out, diffPairs(from.OCI.pairs(), to.OCI.pairs(), "oci.conf ")...)
	out = append(out, diffRecords("node", byName(from.Nodes, nodeName), byName(to.Nodes, nodeName), newNode)...)
	out = append(out, diffRecords("partition", byName(from.Partitions, partName), byName(to.Partitions, partName), newPartition)...)
	out = append(out, diffGres(from, to)...)
	return append(out, diffRecords("switch", byName(from.Switches, switchName), byName(to.Switches, switchName), newSwitch)...)
}

func nodeName(n *Node) string      { return n.Name }
func partName(p *Partition) string { return p.Name }
func switchName(s *Switch) string  { return s.Name }

func diffPairs(from, to []Pair, before string) (out []string) {
	was := map[string]string{}
	for _, p := range from {
		was[p.Key] = p.Value
	}
	note := func(key string) string {
		if program := atStart[key]; program != "" {
			return " (after a restart of " + program + ")"
		}
		return ""
	}
	for _, p := range to {
		if old, ok := was[p.Key]; !ok || old != p.Value {
			out = append(out, fmt.Sprintf("%s%s: %s -> %s%s", before, p.Key, shown(old), shown(p.Value), note(p.Key)))
		}
		delete(was, p.Key)
	}
	for _, p := range from {
		if old, left := was[p.Key]; left {
			out = append(out, fmt.Sprintf("%s%s: %s -> %s%s", before, p.Key, shown(old), shown(""), note(p.Key)))
		}
	}
	return out
}

func shown(value string) string { return cmp.Or(value, "(null)") }

// named are records by name, in order.
type named[T any] struct {
	names []string
	by    map[string]*T
}

func byName[T any](list []*T, name func(*T) string) named[T] {
	n := named[T]{by: make(map[string]*T, len(list))}
	for _, r := range list {
		n.names = append(n.names, name(r))
		n.by[name(r)] = r
	}
	return n
}

// diffRecords compares records of one kind; news describes new ones.
func diffRecords[T any](kind string, from, to named[T], news func(*T) string) (out []string) {
	g := group{}
	for _, name := range from.names {
		if to.by[name] == nil {
			g.add("removed", name)
		}
	}
	for _, name := range to.names {
		old, now := from.by[name], to.by[name]
		if old == nil {
			g.add("new: "+news(now), name)
		} else if d := diffFields(old, now); d != "" {
			g.add(d, name)
		}
	}
	return g.lines(kind)
}

// group collects names by difference.
type group struct {
	order []string
	of    map[string][]string
}

func (g *group) add(what, name string) {
	if g.of == nil {
		g.of = map[string][]string{}
	}
	if g.of[what] == nil {
		g.order = append(g.order, what)
	}
	g.of[what] = append(g.of[what], name)
}

func (g *group) lines(kind string) (out []string) {
	for _, what := range g.order {
		out = append(out, fmt.Sprintf("%s %s: %s", kind, hostlist.Fold(g.of[what]), what))
	}
	return out
}

// units are suffixes of field names that are not part of the key.
var units = []string{"MiB", "Min", "Sec"}

// diffFields compares two records of one kind field by field, by reflection, so that new fields are covered.
func diffFields[T any](from, to *T) string {
	var out []string
	a, b := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || f.Name == "File" || f.Name == "Line" || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		key := f.Name
		for _, unit := range units {
			key = strings.TrimSuffix(key, unit)
		}
		out = append(out, fmt.Sprintf("%s %s -> %s", key, value(f.Name, a.Field(i)), value(f.Name, b.Field(i))))
	}
	return strings.Join(out, ", ")
}

func value(field string, v reflect.Value) string {
	switch x := v.Interface().(type) {
	case []tres.Gres:
		return shown(tres.FormatGres(x, ""))
	case []string:
		if field == "Nodes" {
			return shown(hostlist.Fold(x))
		}
		return shown(strings.Join(x, ","))
	case int64:
		switch x {
		case timespec.Unlimited:
			return "UNLIMITED"
		case NotSet:
			return "(null)"
		}
	case bool:
		return yes(x)
	case string:
		return shown(x)
	}
	return fmt.Sprint(v.Interface())
}

func newNode(n *Node) string {
	return fmt.Sprintf("CPUs=%d RealMemory=%d Gres=%s", n.CPUs, n.RealMemoryMiB, shown(tres.FormatGres(n.Gres, "")))
}

func newPartition(p *Partition) string { return "Nodes=" + shown(hostlist.Fold(p.Nodes)) }

func newSwitch(s *Switch) string {
	return strings.TrimSpace("Nodes=" + hostlist.Fold(s.Nodes) + " Switches=" + hostlist.Fold(s.Switches))
}

// diffGres compares the gres.conf lines of the nodes that exist in both.
func diffGres(from, to *Config) []string {
	if reflect.DeepEqual(plainGres(from.Gres), plainGres(to.Gres)) {
		return nil
	}
	g := group{}
	for _, n := range to.Nodes {
		if _, both := from.Node(n.Name); !both {
			continue
		}
		if was, now := gresText(from, n.Name), gresText(to, n.Name); was != now {
			g.add(shown(was)+" -> "+shown(now), n.Name)
		}
	}
	return g.lines("gres.conf of")
}

// plainGres returns the lines without their places.
func plainGres(lines []GresLine) []GresLine {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].File, lines[i].Line = "", 0
	}
	return lines
}

func gresText(c *Config, node string) string {
	var out []string
	for _, l := range c.Gres {
		if !l.For(node) {
			continue
		}
		text := fmt.Sprintf("%s:%s:%d", l.Name, l.Type, l.Count)
		if l.Name == "" {
			text = "AutoDetect=" + l.AutoDetect
		}
		for _, part := range []struct {
			key string
			has bool
			of  any
		}{{"File", len(l.Files) > 0, hostlist.Fold(l.Files)}, {"Cores", len(l.Cores) > 0, l.Cores}, {"Links", len(l.Links) > 0, l.Links},
			{"Flags", len(l.Flags) > 0, strings.Join(l.Flags, ",")}} {
			if part.has {
				text += fmt.Sprintf(" %s=%v", part.key, part.of)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
