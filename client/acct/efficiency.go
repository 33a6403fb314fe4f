package acct

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// AppendEfficiency appends seff's output for a job.
func AppendEfficiency(b []byte, c *Context, j *msg.JobRecord) []byte {
	r := Row{JobRecord: j, all: Together(j, c.MadeFor(j))}
	line := func(key, text string, args ...any) {
		b = append(b, key+": "+format.Escape(fmt.Sprintf(text, args...))+"\n"...)
	}
	line("Job ID", "%d", j.GetId())
	if j.GetArrayJobId() != 0 {
		line("Array Job ID", "%s", r.jobID(c))
	}
	line("Cluster", "%s", c.Cluster)
	line("User/Group", "%s/%s", or(j.GetSpec().GetUser(), number(uint64(j.GetSpec().GetUid()))), group(c, r))
	state := or(strings.Fields(r.State())[0], "UNKNOWN")
	if ended(j) {
		line("State", "%s (exit code %s)", state, seffExit(r))
	} else {
		line("State", "%s", state)
	}
	cores, nodes := r.cpus(), max(r.nodes(), 1)
	if cores == 1 {
		line("Cores", "1")
	} else {
		line("Nodes", "%d", nodes)
		line("Cores per node", "%d", cores/nodes)
	}
	if len(j.GetAlloc()) == 0 {
		return append(b, "Efficiency not available for jobs in the "+state+" state.\n"...)
	}
	wall := r.elapsed(c)
	user, system := r.cpu()
	used := int64((user + system) / 1e6)
	line("CPU Utilized", "%s", timespec.Clock(used))
	line("CPU Efficiency", "%s of %s core-walltime", percent(float64(used), float64(wall*int64(cores))), timespec.Clock(wall*int64(cores)))
	line("Job Wall-clock time", "%s", timespec.Clock(wall))
	b = r.appendMemory(b)
	b = r.appendGPUs(b, wall)
	if !ended(j) {
		b = append(b, "WARNING: Efficiency statistics may be misleading for "+state+" jobs.\n"...)
	}
	return b
}

// seffExit is the exit code, or the signal that ended the job.
func seffExit(r Row) string {
	status := r.exitStatus()
	if status&0x7f != 0 {
		return number(uint64(status & 0x7f))
	}
	return number(uint64(status >> 8))
}

func percent(part, whole float64) string {
	if whole <= 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*part/whole)
}

// kib formats memory as seff does: "1.50 GB".
func kib(v uint64) string {
	value, unit := float64(v), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.2f %s", value, [...]string{"KB", "MB", "GB", "TB", "PB"}[unit])
}

func (r Row) appendMemory(b []byte) []byte {
	var used, held uint64
	for _, u := range r.usage() {
		used += u.GetMaxRssKib()
	}
	for _, a := range r.GetAlloc() {
		held += a.GetMemMib() << 10
	}
	b = fmt.Appendf(b, "Memory Utilized: %s\n", kib(used))
	if held == 0 {
		return append(b, "Memory Efficiency: n/a, no memory was allocated\n"...)
	}
	return fmt.Appendf(b, "Memory Efficiency: %s of %s\n", percent(float64(used), float64(held)), kib(held))
}

// appendGPUs appends the use of the GPUs. A figure that the driver does not provide is n/a, never 0.
func (r Row) appendGPUs(b []byte, wall int64) []byte {
	n, shards, types := r.gpus()
	if n == 0 {
		return b
	}
	held := strconv.Itoa(n)
	if shards > 0 {
		held = fmt.Sprintf("%d, shared with other jobs: %d shards; the figures include the use by other jobs", n, shards)
	}
	b = fmt.Appendf(b, "GPUs: %s", held)
	if types != "" {
		b = append(b, " ("+format.Escape(types)+")"...)
	}
	b = append(b, '\n')
	u := format.UseOf(r.JobRecord).GPUs
	if u.UtilOf == 0 {
		b = append(b, "GPU Efficiency: n/a\n"...)
	} else {
		b = fmt.Appendf(b, "GPU Efficiency: %.2f%% of %s GPU-walltime\n", u.Util, timespec.Clock(wall*int64(n)))
		if u.UtilOf < u.Devices {
			b = fmt.Appendf(b, "GPUs Measured: %d of %d, the driver reports nothing about the others\n", u.UtilOf, u.Devices)
		}
		if shards == 0 {
			hours := float64(wall) * float64(n) / 3600
			b = fmt.Appendf(b, "GPU-hours wasted: %.2f of %.2f\n", hours*(1-min(u.Util, 100)/100), hours)
		}
	}
	memory := kib(uint64(max(u.MemMiB, 0)) << 10)
	if u.MemoryOf > 1 {
		memory += ", at most " + kib(uint64(u.MostMiB)<<10) + " on one"
	}
	b = appendKnown(b, "GPU Memory Utilized", u.MemoryOf > 0, memory)
	return appendKnown(b, "GPU Energy", u.EnergyOf > 0, fmt.Sprintf("%.2f Wh", float64(u.EnergyMJ)/3.6e6))
}

func appendKnown(b []byte, key string, known bool, text string) []byte {
	if !known {
		text = "n/a"
	}
	return append(b, key+": "+text+"\n"...)
}

// gpus returns the number of GPUs that the job held or had shards of, the number of shards, and the types.
func (r Row) gpus() (n, shards int, types string) {
	seen := map[string]bool{}
	var names []string
	for _, a := range r.GetAlloc() {
		of := map[string]bool{} // GPUs of the node of which the job has shards
		for _, d := range a.GetDevices() {
			switch {
			case d.GetShare() > 0:
				shards += int(d.GetShare())
				if of[d.GetId()] {
					continue
				}
				of[d.GetId()] = true
				n++
			case d.GetName() != "gpu":
				continue
			default:
				n += int(max(d.GetCount(), 1))
			}
			if t := d.GetType(); t != "" && !seen[t] {
				seen[t] = true
				names = append(names, t)
			}
		}
	}
	return n, shards, strings.Join(names, ", ")
}
