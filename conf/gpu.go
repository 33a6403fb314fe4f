package conf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// GPU holds the settings for GPUs: the words of SlurmdParameters that begin with gpu_ (docs/gpus.md). They are Sluice's own.
type GPU struct {
	UUIDs         bool     // gpu_uuids: CUDA_VISIBLE_DEVICES names UUIDs
	SampleS       uint32   // gpu_sample=
	IgnoreXIDs    []uint32 // gpu_ignore_xids=13:31
	RecoverS      uint32   // gpu_recover=: seconds that a GPU must be healthy before it is allocated again
	IgnoreForeign bool     // gpu_foreign=ignore
	FaultDrains   bool     // gpu_fault=drain: a fault of one GPU drains its node
	MIG           []string // gpu_mig=dynamic[:name+…]: nodes and partitions, "ALL" for all of them
	IdleMin       uint32   // gpu_idle=: minutes of idle GPUs after which a job is marked; 0: never
	IdleAction    string   // gpu_idle_action=: mark, warn or cancel
	JobMap        string   // gpu_job_map=: directory of files for dcgm-exporter; empty: the default, "off": none
	Stat          string   // gpu_stat=: directory of files with "jobid uid"; empty and "off" likewise
}

// defaultGPU returns the defaults in docs/gpus.md. The XIDs are those that an application causes by itself (NVIDIA's list of XID errors:
// graphics engine exception, MMU fault, invalid or stopped channel, video processor, context switch timeout).
func defaultGPU() GPU {
	return GPU{SampleS: 10, RecoverS: 300, IgnoreXIDs: []uint32{13, 31, 43, 45, 68, 109}, IdleAction: "mark"}
}

// gpuWords reads the value of each word.
var gpuWords = map[string]func(*GPU, string) error{
	"gpu_uuids": func(g *GPU, v string) error {
		if v != "" {
			return fmt.Errorf("it takes no value")
		}
		g.UUIDs = true
		return nil
	},
	"gpu_sample":  func(g *GPU, v string) error { return readNumber(&g.SampleS, v, 1, 3600) },
	"gpu_recover": func(g *GPU, v string) error { return readNumber(&g.RecoverS, v, 0, 86400) },
	"gpu_idle":    func(g *GPU, v string) error { return readNumber(&g.IdleMin, v, 0, 525600) },
	"gpu_ignore_xids": func(g *GPU, v string) error {
		g.IgnoreXIDs = nil
		for w := range strings.SplitSeq(v, ":") {
			n, err := strconv.ParseUint(w, 10, 16)
			if err != nil && v != "" {
				return fmt.Errorf("%.20q is not the number of an XID; separate them with colons, as in 13:31:43", w)
			}
			if v != "" {
				g.IgnoreXIDs = append(g.IgnoreXIDs, uint32(n))
			}
		}
		return nil
	},
	"gpu_foreign": func(g *GPU, v string) error {
		word, err := oneOf(v, "avoid", "ignore")
		g.IgnoreForeign = word == "ignore"
		return err
	},
	"gpu_fault": func(g *GPU, v string) error {
		word, err := oneOf(v, "device", "drain")
		g.FaultDrains = word == "drain"
		return err
	},
	"gpu_idle_action": func(g *GPU, v string) (err error) {
		g.IdleAction, err = oneOf(v, "mark", "warn", "cancel")
		return err
	},
	"gpu_job_map": func(g *GPU, v string) error { return readFolder(&g.JobMap, v) },
	"gpu_stat":    func(g *GPU, v string) error { return readFolder(&g.Stat, v) },
	"gpu_mig": func(g *GPU, v string) error {
		mode, names, some := strings.Cut(v, ":")
		mode, err := oneOf(mode, "dynamic", "off")
		switch {
		case err != nil:
			return err
		case mode == "off" && !some:
			g.MIG = nil
		case mode == "off" || some && names == "":
			return fmt.Errorf("write off, dynamic, or dynamic:name+name with names of nodes and partitions")
		case some:
			g.MIG = strings.Split(names, "+")
		default:
			g.MIG = []string{"ALL"}
		}
		return nil
	},
}

// readFolder reads an absolute path, or off.
func readFolder(to *string, v string) error {
	if v != "off" && (!filepath.IsAbs(v) || filepath.Clean(v) == "/") {
		return fmt.Errorf("%.100q is neither the absolute path of a directory nor off", v)
	}
	*to = v
	return nil
}

// readGPU reads the gpu_ words of SlurmdParameters.
func (l *loader) readGPU() {
	c, at := l.c, l.at("SlurmdParameters")
	c.GPU = defaultGPU()
	var names []string
	for name := range gpuWords {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, word := range words(c.SlurmdParameters.String()) {
		name, value, _ := strings.Cut(word, "=")
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "gpu_") {
			continue
		}
		read := gpuWords[lower]
		if read == nil {
			help := didYouMean(lower, names)
			if help == "" {
				help = "there are " + strings.Join(names, ", ")
			}
			l.fault(at, help, "SlurmdParameters=%s: unknown GPU rule", name)
			continue
		}
		if err := read(&c.GPU, value); err != nil {
			l.fault(at, "", "SlurmdParameters=%s: %v", word, err)
		}
	}
	for _, name := range c.GPU.MIG {
		_, isPartition := c.partition[name]
		if name != "ALL" && c.nodeByID[name] == nil && !isPartition {
			l.fault(at, "name nodes and partitions, with + between them", "SlurmdParameters=gpu_mig: there is no node or partition %.40q",
				name)
		}
	}
}

// DynamicMIG reports whether the GPUs of a node are partitioned into MIG instances on demand.
func (c *Config) DynamicMIG(node string) bool {
	for _, name := range c.GPU.MIG {
		if name == "ALL" || name == node {
			return true
		}
		if p := c.partition[name]; p != nil && slices.Contains(p.Nodes, node) {
			return true
		}
	}
	return false
}
