package conf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// GresLine is one line of gres.conf.
type GresLine struct {
	Nodes      []string // nil: every node that reads the file
	AutoDetect string   // nvml, rsmi, oneapi, nrt, nvidia, full, off, or empty
	Name       string   // empty if the line only sets AutoDetect
	Type       string
	Files      []string // expanded; includes those of MultipleFiles
	Multiple   bool     // all Files together are one resource (MIG)
	Count      uint64
	Cores      []int
	Links      []int
	Flags      []string

	File string
	Line int

	counted bool
}

// For reports whether the line applies to a node.
func (g GresLine) For(node string) bool {
	return g.Nodes == nil || slices.Contains(g.Nodes, node)
}

// GresOf returns the lines of gres.conf that apply to a node.
func (c *Config) GresOf(node string) []GresLine {
	var out []GresLine
	for _, g := range c.Gres {
		if g.For(node) {
			out = append(out, g)
		}
	}
	return out
}

var gresKeys = recordKeys(func() []recordKey[GresLine] {
	return []recordKey[GresLine]{
		{name: "NodeName", set: func(g *GresLine, v string) (err error) {
			if g.Nodes, err = hostlist.Expand(v); err == nil && len(g.Nodes) == 0 {
				err = fmt.Errorf("it has no value")
			}
			return err
		}},
		{name: "AutoDetect", set: func(g *GresLine, v string) (err error) {
			g.AutoDetect, err = oneOf(v, "nvml", "nvidia", "rsmi", "oneapi", "nrt", "full", "off")
			return err
		}},
		{name: "Name", set: func(g *GresLine, v string) error {
			g.Name = v
			return nil
		}},
		{name: "Type", set: func(g *GresLine, v string) error {
			g.Type = v
			return nil
		}},
		{name: "File", set: func(g *GresLine, v string) (err error) {
			if len(g.Files) > 0 {
				return fmt.Errorf("cannot have both File and MultipleFiles")
			}
			g.Files, err = hostlist.Expand(v)
			return err
		}},
		{name: "MultipleFiles", set: func(g *GresLine, v string) (err error) {
			if len(g.Files) > 0 {
				return fmt.Errorf("cannot have both File and MultipleFiles")
			}
			g.Multiple = true
			g.Files, err = hostlist.Expand(v)
			return err
		}},
		{name: "Count", set: func(g *GresLine, v string) error {
			list, err := tres.ParseNodeGres("x:" + v)
			if err != nil || len(list) != 1 || list[0].Type != "" {
				return fmt.Errorf("%.40q is not a count; write a whole number, with K, M or G where that helps", v)
			}
			g.Count, g.counted = list[0].Count, true
			return nil
		}},
		{name: "Cores", set: readCores},
		{name: "CPUs", set: readCores},
		{name: "Links", set: func(g *GresLine, v string) (err error) {
			g.Links, err = readInts(v, -1)
			return err
		}},
		{name: "Flags", set: func(g *GresLine, v string) error {
			g.Flags = nil
			for _, w := range words(v) {
				flag, err := oneOf(w, "CountOnly", "explicit", "one_sharing", "all_sharing", "nvidia_gpu_env", "amd_gpu_env",
					"intel_gpu_env", "opencl_env", "no_gpu_env")
				if err != nil {
					return err
				}
				g.Flags = append(g.Flags, flag)
			}
			return nil
		}},
		{name: "Ignore", why: "Ignore needs AutoDetect"},
	}
})

// readCores reads "0-3,8".
func readCores(g *GresLine, v string) error {
	names, err := hostlist.Expand("[" + v + "]")
	if err != nil {
		return fmt.Errorf("%.60q is not a list of cores such as 0-3,8", v)
	}
	g.Cores, err = readInts(strings.Join(names, ","), 0)
	return err
}

func readInts(v string, low int) ([]int, error) {
	var out []int
	for _, w := range words(v) {
		n, err := strconv.Atoi(w)
		if err != nil || n < low || n > 65535 {
			return nil, fmt.Errorf("%.20q is not a number", w)
		}
		out = append(out, n)
	}
	return out, nil
}

// gresLine reads one line of gres.conf.
func (l *loader) gresLine(pairs []pair) {
	at := pairs[0].place
	g := GresLine{File: at.file, Line: at.line}
	before := len(l.faults)
	readRecord(l, "gres.conf", gresKeys(), pairs, &g)
	if len(l.faults) > before {
		return
	}
	if g.Name == "" && g.AutoDetect == "" {
		l.fault(at, "add Name=gpu, for instance", "the line has no Name")
		return
	}
	shared := g.Name == "mps" || g.Name == "shard"
	devices := uint64(len(g.Files))
	if g.Multiple {
		devices = 1
	}
	switch {
	case !g.counted && g.Name == "shard": // the GPUs' memory determines the count
		g.Count = 0
	case !g.counted && devices > 0:
		g.Count = devices
	case !g.counted && g.Name != "":
		g.Count = 1
	case devices > 0 && g.Count != devices && !shared && !g.Multiple:
		l.fault(at, "omit Count", "Count=%d contradicts %d files", g.Count, devices)
	}
	if len(g.Links) > 0 && len(g.Files) > 1 {
		l.fault(at, "write one line for each device", "Links applies to one device, but the line has %d", len(g.Files))
	}
	for _, file := range g.Files {
		if !strings.HasPrefix(file, "/") {
			l.fault(at, "write it as /dev/nvidia[0-3]", "File %s is not an absolute path", file)
			break
		}
	}
	l.c.Gres = append(l.c.Gres, g)
}

// checkGres compares gres.conf with slurm.conf.
func (l *loader) checkGres() {
	c := l.c
	known := map[string]bool{}
	for _, name := range c.GresTypes {
		known[name] = true
	}
	for _, g := range c.Gres {
		at := place{g.File, g.Line}
		if g.Name != "" && !known[g.Name] {
			l.warn(at, "add it to GresTypes in slurm.conf", "generic resource %s is not one of GresTypes=%s", g.Name,
				strings.Join(c.GresTypes, ","))
		}
		for _, name := range g.Nodes {
			if c.nodeByID[name] == nil {
				l.warn(at, l.nearestNode(name), "gres.conf names unknown node %s", name)
			}
		}
		l.checkGresCores(g)
	}
	for _, n := range c.Nodes {
		for _, g := range n.Gres {
			if !known[g.Name] {
				l.warn(place{n.File, n.Line}, "add it to GresTypes", "generic resource %s is not one of GresTypes=%s", g.Name,
					strings.Join(c.GresTypes, ","))
			}
		}
	}
}

// checkGresCores compares Cores= with the nodes that have the resource: cores that a node lacks are dropped when it registers.
// Tools also write the numbers of second threads; they do no harm.
func (l *loader) checkGresCores(g GresLine) {
	if len(g.Cores) == 0 {
		return
	}
	least, most := slices.Min(g.Cores), slices.Max(g.Cores)
	few := map[int][]string{} // nodes by their number of cores
	for _, n := range l.c.Nodes {
		cores := n.Sockets * n.CoresPerSocket
		has := slices.ContainsFunc(n.Gres, func(r tres.Gres) bool { return r.Name == g.Name })
		if has && g.For(n.Name) && (least >= cores || most >= max(cores, n.CPUs)) {
			few[cores] = append(few[cores], n.Name)
		}
	}
	for _, cores := range slices.Sorted(maps.Keys(few)) {
		l.warn(place{g.File, g.Line}, "count cores, not threads, from 0 on",
			"Cores= goes up to %d, but %s has cores 0-%d: the others are ignored", most, hostlist.Fold(few[cores]), cores-1)
	}
}
