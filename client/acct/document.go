package acct

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// WriteJob writes a job with its steps as Slurm's data_parser v0.0.42 does (slurmdb_job). The first row is the job's own.
func WriteJob(w *jsonout.Writer, c *Context, rows []Row) {
	j := rows[0]
	s := j.GetSpec()
	w.Object("")
	w.Str("account", or(s.GetAccount(), DefaultAccount))
	w.Object("comment")
	w.Str("administrator", s.GetAdminComment())
	w.Str("job", s.GetComment())
	w.Str("system", j.GetSystemComment())
	w.End()
	w.Int("allocation_nodes", int64(j.nodes()))
	w.Object("array")
	w.Int("job_id", int64(j.GetArrayJobId()))
	w.Object("limits")
	w.Object("max")
	w.Object("running")
	w.Int("tasks", int64(j.GetArrayThrottle()))
	w.End()
	w.End()
	w.End()
	if j.GetIsArrayTask() {
		w.Number("task_id", uint64(j.GetArrayTaskId()))
	} else {
		w.Unset("task_id")
	}
	w.Str("task", j.GetArrayTasks())
	w.End()
	w.Object("association")
	w.Str("account", or(s.GetAccount(), DefaultAccount))
	w.Str("cluster", c.Cluster)
	w.Str("partition", "")
	w.Str("user", s.GetUser())
	w.Int("id", doc.AssociationID(s.GetUid()))
	w.End()
	w.Str("block", "")
	w.Str("cluster", c.Cluster)
	w.Str("constraints", s.GetFeatures())
	w.Str("container", s.GetContainer())
	doc.WriteExit(w, "derived_exit_code", j.GetDerivedStatus())
	j.writeTime(w, c)
	doc.WriteExit(w, "exit_code", j.exitStatus())
	w.Str("extra", s.GetExtra())
	w.Str("failed_node", j.GetFailedNode())
	j.writeFlags(w)
	w.Str("group", group(c, j))
	writeHet(w)
	w.Int("job_id", int64(j.GetId()))
	w.Str("name", s.GetName())
	w.Str("licenses", s.GetLicenses())
	w.Object("mcs")
	w.Str("label", s.GetMcsLabel())
	w.End()
	w.Str("nodes", nodeList(j))
	w.Str("partition", partition(c, j))
	w.Bool("hold", j.GetPriority() == 0 && j.GetState() == msg.JobState_JOB_PENDING)
	w.Number("priority", uint64(j.GetPriority()))
	w.Str("qos", or(s.GetQos(), "normal"))
	w.Str("qosreq", s.GetQos())
	j.writeRequired(w)
	w.Str("kill_request_user", "")
	w.Int("restart_cnt", int64(j.GetRestarts()))
	w.Object("reservation")
	w.Int("id", 0)
	w.Str("name", s.GetReservation())
	w.End()
	w.Str("script", "")
	w.Str("stdin_expanded", format.StdIn(j.JobRecord))
	w.Str("stdout_expanded", format.StdOut(j.JobRecord))
	w.Str("stderr_expanded", format.StdErr(j.JobRecord))
	w.Str("stdout", s.GetStdOut())
	w.Str("stderr", s.GetStdErr())
	w.Str("stdin", s.GetStdIn())
	j.writeState(w)
	w.List("steps")
	for _, r := range rows[1:] {
		r.writeStep(w, c)
	}
	w.End()
	w.Str("submit_line", s.GetSubmitLine())
	w.Object("tres")
	doc.WriteTres(w, "allocated", j.GetAllocTres())
	doc.WriteTres(w, "requested", j.GetReqTres())
	w.End()
	w.Str("used_gres", "")
	w.Str("user", s.GetUser())
	w.Object("wckey")
	w.Str("wckey", s.GetWckey())
	w.List("flags")
	w.End()
	w.End()
	w.Str("working_directory", s.GetWorkDir())
	w.End()
}

// exitStatus is the wait status shown by ExitCode.
func (r Row) exitStatus() uint32 {
	if r.exitCode() == "0:0" {
		return 0
	}
	switch {
	case r.made != nil:
		return r.made.GetExitStatus()
	case r.Step == "batch":
		return r.stepStatus()
	}
	return r.GetExitStatus()
}

func writeHet(w *jsonout.Writer) {
	w.Object("het")
	w.Int("job_id", 0)
	w.Unset("job_offset")
	w.End()
}

func (r Row) writeTime(w *jsonout.Writer, c *Context) {
	w.Object("time")
	w.Int("elapsed", r.elapsed(c))
	w.Int("eligible", r.GetEligibleNs()/1e9)
	w.Int("end", r.end(c)/1e9)
	w.Number("planned", uint64(max(r.planned(c), 0)))
	w.Int("start", r.start(c)/1e9)
	w.Int("submission", r.GetSubmitNs()/1e9)
	w.Int("suspended", r.suspended(c))
	user, system := r.cpu()
	writeCPU(w, "system", system)
	w.Limit("limit", (uint64(r.GetTimeLimitS())+59)/60, r.GetTimeLimitS() == msg.Unlimited)
	writeCPU(w, "total", user+system)
	writeCPU(w, "user", user)
	w.End()
}

func writeCPU(w *jsonout.Writer, key string, usec uint64) {
	w.Object(key)
	w.Int("seconds", int64(usec/1e6))
	w.Int("microseconds", int64(usec%1e6))
	w.End()
}

func (r Row) writeFlags(w *jsonout.Writer) {
	list := []string{"START_RECEIVED"}
	switch r.GetScheduler() {
	case "Main":
		list = append(list, "STARTED_ON_SCHEDULE")
	case "Backfill":
		list = append(list, "STARTED_ON_BACKFILL")
	case "Submit":
		list = append(list, "STARTED_ON_SUBMIT")
	}
	w.Strs("flags", list...)
}

func (r Row) writeRequired(w *jsonout.Writer) {
	s := r.GetSpec()
	w.Object("required")
	w.Int("CPUs", int64(r.reqCPUs()))
	if mib := s.GetMemPerCpuMib(); mib != 0 {
		w.Number("memory_per_cpu", mib)
		w.Unset("memory_per_node")
	} else {
		w.Unset("memory_per_cpu")
		w.Number("memory_per_node", s.GetMemPerNodeMib())
	}
	w.End()
}

func (r Row) writeState(w *jsonout.Writer) {
	w.Object("state")
	list := []string{baseState(r.JobRecord)}
	if r.GetStateFlags()&msg.JobRequeued != 0 {
		list = []string{"REQUEUED"}
	}
	w.Strs("current", list...)
	w.Str("reason", r.reason())
	w.End()
}

func (r Row) writeStep(w *jsonout.Writer, c *Context) {
	w.Object("")
	w.Object("time")
	w.Int("elapsed", r.elapsed(c))
	w.Seconds("end", r.end(c))
	w.Seconds("start", r.start(c))
	w.Int("suspended", r.suspended(c))
	user, system := r.cpu()
	writeCPU(w, "system", system)
	writeCPU(w, "total", user+system)
	writeCPU(w, "user", user)
	w.End()
	doc.WriteExit(w, "exit_code", r.exitStatus())
	w.Object("nodes")
	w.Int("count", int64(max(r.nodes(), 1)))
	w.Str("range", nodeList(r))
	nodes, _ := hostlist.Expand(nodeList(r))
	w.Strs("list", nodes...)
	w.End()
	w.Object("tasks")
	w.Int("count", int64(r.tasks()))
	w.End()
	w.Str("pid", "")
	w.Object("CPU")
	w.Object("requested_frequency")
	w.Number("min", 0)
	w.Number("max", 0)
	w.End()
	w.Str("governor", "0")
	w.End()
	w.Str("kill_request_user", "")
	w.Strs("state", r.stepState())
	w.Object("statistics")
	w.Object("CPU")
	w.Int("actual_frequency", 0)
	w.End()
	w.Object("energy")
	in, out := r.collect()
	if e := find(in, "energy"); e != nil {
		w.Number("consumed", e.total())
	} else {
		w.Unset("consumed")
	}
	w.End()
	w.End()
	w.Object("step")
	w.Str("id", number(uint64(r.GetId()))+r.dotStep())
	w.Str("name", r.name())
	w.End()
	w.Object("task")
	w.Str("distribution", r.layout())
	w.End()
	w.Object("tres")
	r.writeUses(w, "requested", in)
	r.writeUses(w, "consumed", out)
	doc.WriteTres(w, "allocated", allocTres(c, r))
	w.End()
	w.End()
}

func (r Row) writeUses(w *jsonout.Writer, key string, list []use) {
	w.Object(key)
	for _, kind := range []struct {
		name  string
		value func(*use) (uint64, string)
	}{
		{"max", func(u *use) (uint64, string) { m := u.most(); return m.value, m.node }},
		{"min", func(u *use) (uint64, string) { m := u.least(); return m.value, m.node }},
		{"average", func(u *use) (uint64, string) { return u.mean(), "" }},
		{"total", func(u *use) (uint64, string) { return u.total(), "" }},
	} {
		w.List(kind.name)
		for i := range list {
			class, name, _ := strings.Cut(list[i].name, "/")
			v, node := kind.value(&list[i])
			w.Object("")
			w.Str("type", class)
			w.Str("name", name)
			w.Int("id", doc.TresID(list[i].name))
			w.Int("count", int64(v))
			if node != "" {
				w.Int("task", int64(r.firstTask(node)))
				w.Str("node", node)
			}
			w.End()
		}
		w.End()
	}
	w.End()
}
