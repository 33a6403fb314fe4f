package doc

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// WriteStep writes a running step as an element of "steps" (data_parser v0.0.42, step).
func WriteStep(w *jsonout.Writer, c *format.Context, s format.Step) {
	r := s.Job
	nodes, _ := hostlist.Expand(s.NodeList())
	w.Object("")
	w.Object("time")
	w.Int("elapsed", max(s.UsedSeconds(c), 0))
	w.Unset("end")
	w.Seconds("start", s.StartNs())
	w.Int("suspended", s.Record.GetSuspendedNs()/1e9)
	for _, key := range []string{"system", "total", "user"} {
		w.Object(key)
		w.Int("seconds", 0)
		w.Int("microseconds", 0)
		w.End()
	}
	w.End()
	exitCode(w, "exit_code", 0)
	w.Object("nodes")
	w.Int("count", int64(len(nodes)))
	w.Str("range", s.NodeList())
	w.Strs("list", nodes...)
	w.End()
	w.Object("tasks")
	w.Int("count", int64(s.Tasks()))
	w.End()
	w.Str("pid", pid(s.Record.GetSpec().GetPid()))
	w.Object("CPU")
	w.Object("requested_frequency")
	w.Unset("min")
	w.Unset("max")
	w.End()
	w.Str("governor", "")
	w.End()
	w.Str("kill_request_user", "")
	w.Strs("state", JobStateList(r)...)
	w.Object("statistics") // a running step has those of sstat
	w.Object("CPU")
	w.Int("actual_frequency", 0)
	w.End()
	w.Object("energy")
	w.Unset("consumed")
	w.End()
	w.End()
	w.Object("step")
	w.Str("id", string(format.AppendJobID(nil, c, format.Job{JobRecord: r}))+"."+s.Number())
	w.Str("name", s.Name())
	w.End()
	w.Object("task")
	w.Str("distribution", layout(s))
	w.End()
	w.Object("tres")
	for _, key := range []string{"requested", "consumed"} {
		w.Object(key)
		for _, figure := range []string{"max", "min", "average", "total"} {
			w.List(figure)
			w.End()
		}
		w.End()
	}
	WriteTres(w, "allocated", s.Record.GetAllocTres())
	w.End()
	w.End()
}

// pid is the process id of srun, as a text.
func pid(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

// WriteTres writes "cpu=2,mem=100M" as a list of resources.
func WriteTres(w *jsonout.Writer, key, text string) {
	w.List(key)
	list, _ := tres.Parse(text)
	for _, it := range list {
		class, name, _ := strings.Cut(it.Name, "/")
		w.Object("")
		w.Str("type", class)
		w.Str("name", name)
		w.Int("id", TresID(it.Name))
		w.Int("count", int64(it.Count))
		w.End()
	}
	w.End()
}

// TresNames are the trackable resources that every cluster has, in the order of their ids from 1 (sacctmgr show tres).
var TresNames = []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}

// TresID is the id of a resource: Slurm's fixed ones, and 1001 for all others.
func TresID(name string) int64 {
	for i, n := range TresNames {
		if n == name {
			return int64(i + 1)
		}
	}
	return 1001
}

func layout(s format.Step) string {
	if s.Record == nil {
		return "Unknown"
	}
	return format.StepLayout(s.Record)
}
