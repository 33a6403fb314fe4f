package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Pair is one line of `scontrol show config`.
type Pair struct{ Key, Value string }

// Runtime is the part of `scontrol show config` that is not configuration.
type Runtime struct {
	NextJobID           uint32
	Version             string
	SlurmUID, SlurmdUID uint32
}

// Pairs returns the configuration as `scontrol show config` of Slurm 22.05 prints it: names, order and format. Keys without effect
// keep the value that was written.
func (c *Config) Pairs(rt Runtime) []Pair {
	var out []Pair
	for _, r := range pairRows() {
		switch {
		case r.each != nil:
			out = append(out, r.each(c)...)
		case r.when == nil || r.when(c):
			out = append(out, Pair{r.name, r.value(c, rt)})
		}
	}
	return out
}

// pairRow is one row of the output, or several of them.
type pairRow struct {
	name  string
	when  func(*Config) bool // nil: always
	value func(*Config, Runtime) string
	each  func(*Config) []Pair
}

func row(name string, value func(*Config, Runtime) string) pairRow {
	return pairRow{name: name, value: value}
}

// written is a row for a key without effect: the value in the file, or def.
func written(name, def, unit string) pairRow {
	return row(name, func(c *Config, _ Runtime) string { return c.rawOr(name, def) + unit })
}

// null is how Slurm prints an unset value.
const null = "(null)"

func or(s string) string {
	if s == "" {
		return null
	}
	return s
}

func join(words []string, def string) string {
	if len(words) == 0 {
		return def
	}
	return strings.Join(words, ",")
}

func sortedWords(words []string) []string { return slices.Sorted(slices.Values(words)) }

func lowerWords(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ToLower(w)
	}
	return out
}

func yes(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func sec(n int64) string { return secOrInfinite(n) }

func secOrInfinite(n int64) string {
	if n == timespec.Unlimited {
		return "INFINITE"
	}
	return strconv.FormatInt(n, 10) + " sec"
}

func minOrUnlimited(n int64) string {
	if n == timespec.Unlimited {
		return "UNLIMITED"
	}
	return strconv.FormatInt(n, 10) + " min"
}

// prologTimeout prints no limit as Slurm's 16-bit number for it.
func prologTimeout(n int64) string {
	if n == timespec.Unlimited {
		return "65534"
	}
	return strconv.FormatInt(n, 10)
}

func (c *Config) rawOr(key, def string) string {
	if v, ok := c.Value(key); ok {
		return v
	}
	return def
}

func (c *Config) rawYes(key string) string {
	b := false
	if v, ok := c.Value(key); ok && readBool(&b, v) != nil {
		return v
	}
	return yes(b)
}

func multifactor(c *Config) bool { return strings.EqualFold(c.PriorityType, "priority/multifactor") }

func sharesNodes(c *Config) bool { return !strings.EqualFold(c.SelectType, "select/linear") }

// sharesHosts reports whether two nodes are on one machine.
func sharesHosts(c *Config) bool {
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if seen[n.Hostname] {
			return true
		}
		seen[n.Hostname] = true
	}
	return false
}

func controllerHosts(c *Config) []Pair {
	out := make([]Pair, len(c.SlurmctldHosts))
	for i, h := range c.SlurmctldHosts {
		out[i] = Pair{fmt.Sprintf("SlurmctldHost[%d]", i), h.String()}
	}
	return out
}

// enforced adds what limits and QOS imply.
func enforced(c *Config) string {
	var out []string
	for _, e := range c.AccountingStorageEnforce {
		switch strings.ToLower(e) {
		case "none", "0":
		case "limits", "qos", "wckeys", "safe", "associations", "all", "1", "yes":
			if !slices.Contains(out, "associations") {
				out = append(out, "associations")
			}
			fallthrough
		default:
			if e = strings.ToLower(e); !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return join(out, "none")
}

// trackedTRES prints the resources that are always tracked before those that the file adds.
func trackedTRES(c *Config) string {
	all := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	for _, t := range c.AccountingStorageTRES {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return strings.Join(all, ",")
}

func jobDefaults(c *Config) string {
	var out []string
	if c.DefCPUPerGPU > 0 {
		out = append(out, fmt.Sprintf("DefCpuPerGPU=%d", c.DefCPUPerGPU))
	}
	if c.DefMemPerGPUMiB > 0 {
		out = append(out, fmt.Sprintf("DefMemPerGPU=%d", c.DefMemPerGPUMiB))
	}
	return join(out, null)
}

// memoryRow prints whichever of DefMemPerCPU and DefMemPerNode (or of the Max keys) is set.
func memoryRow(prefix string) pairRow {
	return pairRow{each: func(c *Config) []Pair {
		perCPU, perNode := c.DefMemPerCPUMiB, c.DefMemPerNodeMiB
		if prefix == "MaxMemPer" {
			perCPU, perNode = c.MaxMemPerCPUMiB, c.MaxMemPerNodeMiB
		}
		switch {
		case perCPU > 0:
			return []Pair{{prefix + "CPU", strconv.FormatUint(perCPU, 10)}}
		case perNode > 0:
			return []Pair{{prefix + "Node", strconv.FormatUint(perNode, 10)}}
		}
		return []Pair{{prefix + "Node", "UNLIMITED"}}
	}}
}

// CgroupPairs returns the cgroup.conf part of scontrol show config: the settings in effect.
func (c *Config) CgroupPairs() []Pair {
	g := c.Cgroup
	named := func(key, word string) bool { return strings.Contains(strings.ToLower(c.rawOr(key, "")), word) }
	if !g.ConstrainCores && !g.ConstrainRAMSpace && !g.ConstrainDevices && !named("TaskPlugin", "cgroup") &&
		!named("ProctrackType", "cgroup") {
		return nil // as in Slurm
	}
	flag := func(b bool) string { return strings.ToLower(yes(b)) }
	percent := func(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) + "%" }
	return []Pair{
		{"AllowedKmemSpace", null}, {"AllowedRAMSpace", percent(g.AllowedRAMPercent)}, {"AllowedSwapSpace", percent(g.AllowedSwapPercent)},
		{"CgroupAutomount", "no"}, {"CgroupMountpoint", g.CgroupMountpoint}, {"CgroupPlugin", g.CgroupPlugin},
		{"ConstrainCores", flag(g.ConstrainCores)}, {"ConstrainDevices", flag(g.ConstrainDevices)}, {"ConstrainKmemSpace", "no"},
		{"ConstrainRAMSpace", flag(g.ConstrainRAMSpace)}, {"ConstrainSwapSpace", flag(g.ConstrainSwapSpace)},
		{"IgnoreSystemd", flag(g.IgnoreSystemd)},
		{"IgnoreSystemdOnFailure", flag(g.IgnoreSystemdOnFailure)}, {"MaxKmemPercent", "100.0%"},
		{"MaxRAMPercent", percent(g.MaxRAMPercent)},
		{"MaxSwapPercent", percent(g.MaxSwapPercent)}, {"MemorySwappiness", null}, {"MinKmemSpace", "30 MB"},
		{"MinRAMSpace", strconv.FormatUint(g.MinRAMSpaceMiB, 10) + " MB"},
	}
}
