package acct

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Field is a column: its name, width (negative: left-aligned) and text.
type Field struct {
	Name  string
	Width int
	Text  func(c *Context, r Row) string
	// Newer fields do not exist in 22.05; they are looked up after the others.
	Newer bool
}

type get = func(c *Context, r Row) string

// both makes a field of jobs and steps.
func both(f func(r Row) string) get { return func(_ *Context, r Row) string { return f(r) } }

// job makes a field of the job's line only.
func job(f func(c *Context, r Row) string) get {
	return func(c *Context, r Row) string {
		if r.Step != "" {
			return ""
		}
		return f(c, r)
	}
}

// spec makes a field of the job's specification.
func spec(f func(*msg.JobSpec) string) get {
	return job(func(_ *Context, r Row) string { return f(r.GetSpec()) })
}

// step makes a field of the steps' lines only.
func step(f func(c *Context, r Row) string) get {
	return func(c *Context, r Row) string {
		if r.Step == "" {
			return ""
		}
		return f(c, r)
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func fixed(s string) get { return func(*Context, Row) string { return s } }

// freq is for processor frequencies, which are left to the kernel.
func freq(c *Context, r Row) string {
	if r.Step == "" || r.made != nil {
		return "Unknown"
	}
	return "0"
}

func when(c *Context, ns int64) string {
	return string(c.AppendTime(nil, ns, "Unknown"))
}

// FieldNames returns the names of all columns.
func FieldNames() (names []string) {
	for _, f := range fields() {
		names = append(names, f.Name)
	}
	return names
}

// fields returns all columns, in the order of sacct --helpformat, which decides between matches of an abbreviation.
func fields() []Field {
	list := []Field{
		{Name: "Account", Width: 10, Text: both(func(r Row) string { return or(r.GetSpec().GetAccount(), DefaultAccount) })},
		{Name: "AdminComment", Width: 15, Text: spec((*msg.JobSpec).GetAdminComment)},
		{Name: "AllocCPUS", Width: 10, Text: both(func(r Row) string { return number(r.cpus()) })},
		{Name: "AllocNodes", Width: 10, Text: both(func(r Row) string { return number(r.nodes()) })},
		{Name: "AllocTRES", Width: 10, Text: allocTres},
		{Name: "AssocID", Width: 7, Text: both(func(r Row) string { return number(uint64(doc.AssociationID(r.GetSpec().GetUid()))) })},
		{Name: "AveCPU", Width: 10, Text: figure("cpu", (*use).mean)},
		{Name: "AveCPUFreq", Width: 10, Text: step(fixed("0"))},
		{Name: "AveDiskRead", Width: 14, Text: traffic(false, (*use).mean)},
		{Name: "AveDiskWrite", Width: 14, Text: traffic(true, (*use).mean)},
		{Name: "AvePages", Width: 10, Text: figure("pages", (*use).mean)},
		{Name: "AveRSS", Width: 10, Text: figure("mem", (*use).mean)},
		{Name: "AveVMSize", Width: 10, Text: figure("vmem", (*use).mean)},
		{Name: "BlockID", Width: 16, Text: fixed("")},
		{Name: "Cluster", Width: 10, Text: func(c *Context, _ Row) string { return c.Cluster }},
		{Name: "Comment", Width: 14, Text: spec((*msg.JobSpec).GetComment)},
		{Name: "Constraints", Width: 19, Text: spec((*msg.JobSpec).GetFeatures)},
		{Name: "ConsumedEnergy", Width: 14, Text: energy},
		{Name: "ConsumedEnergyRaw", Width: 17, Text: energy},
		{Name: "Container", Width: 19, Text: both(func(r Row) string {
			if r.Step != "" {
				return r.made.GetSpec().GetContainer()
			}
			return r.GetSpec().GetContainer()
		})},
		{Name: "CPUTime", Width: 10, Text: func(c *Context, r Row) string { return timespec.Clock(r.elapsed(c) * int64(r.cpus())) }},
		{Name: "CPUTimeRAW", Width: 10,
			Text: func(c *Context, r Row) string { return strconv.FormatInt(r.elapsed(c)*int64(r.cpus()), 10) }},
		{Name: "DBIndex", Width: -10, Text: both(func(r Row) string { return number(uint64(r.GetId())) })},
		{Name: "DerivedExitCode", Width: 15, Text: job(derived)},
		{Name: "Elapsed", Width: 10, Text: func(c *Context, r Row) string { return timespec.Clock(r.elapsed(c)) }},
		{Name: "ElapsedRaw", Width: 10, Text: func(c *Context, r Row) string { return strconv.FormatInt(r.elapsed(c), 10) }},
		{Name: "Eligible", Width: 19, Text: func(c *Context, r Row) string {
			if r.Step != "" {
				return when(c, r.start(c))
			}
			return when(c, r.GetEligibleNs())
		}},
		{Name: "End", Width: 19, Text: func(c *Context, r Row) string { return when(c, r.end(c)) }},
		{Name: "ExitCode", Width: 8, Text: both(Row.exitCode)},
		{Name: "Flags", Width: 19, Text: job(flags)},
		{Name: "GID", Width: 6, Text: job(func(_ *Context, r Row) string { return number(uint64(r.GetSpec().GetGid())) })},
		{Name: "Group", Width: 9, Text: job(group)},
		{Name: "JobID", Width: -12, Text: func(c *Context, r Row) string { return r.jobID(c) }},
		{Name: "JobIDRaw", Width: -12, Text: both(func(r Row) string { return number(uint64(r.GetId())) + r.dotStep() })},
		{Name: "JobName", Width: 10, Text: both(Row.name)},
		{Name: "Layout", Width: 9, Text: step(func(_ *Context, r Row) string { return r.layout() })},
	}
	list = append(list, maxima()...)
	list = append(list, placeFields()...)
	list = append(list, usageFields()...)
	return append(list, newerFields()...)
}

// placeFields returns the fields from N to W without those of usage.
func placeFields() []Field {
	return []Field{
		{Name: "NCPUS", Width: 10, Text: both(func(r Row) string { return number(r.cpus()) })},
		{Name: "NNodes", Width: 8, Text: both(func(r Row) string {
			if n := r.nodes(); n > 0 || r.Step != "" {
				return number(n)
			}
			return number(uint64(max(r.GetNumNodes(), 1)))
		})},
		{Name: "NodeList", Width: 15, Text: both(nodeList)},
		{Name: "NTasks", Width: 8, Text: step(func(_ *Context, r Row) string { return number(r.tasks()) })},
		{Name: "Partition", Width: 10, Text: job(partition)},
		{Name: "Priority", Width: 10, Text: job(func(_ *Context, r Row) string { return number(uint64(r.GetPriority())) })},
		{Name: "QOS", Width: 10, Text: spec(func(s *msg.JobSpec) string { return or(s.GetQos(), "normal") })},
		{Name: "QOSRAW", Width: 6, Text: job(fixed("1"))},
		{Name: "Reason", Width: 22, Text: job(func(_ *Context, r Row) string { return r.reason() })},
		{Name: "ReqCPUFreq", Width: 10, Text: freq},
		{Name: "ReqCPUFreqGov", Width: 13, Text: freq},
		{Name: "ReqCPUFreqMax", Width: 13, Text: freq},
		{Name: "ReqCPUFreqMin", Width: 13, Text: freq},
		{Name: "ReqCPUS", Width: 8, Text: func(c *Context, r Row) string { return number(r.reqCPUs()) }},
		{Name: "ReqMem", Width: 10, Text: job(reqMem)},
		{Name: "ReqNodes", Width: 8, Text: both(func(r Row) string {
			switch {
			case r.made != nil:
				return number(r.nodes())
			case r.Step != "":
				return "1"
			}
			return number(max(uint64(r.GetSpec().GetMinNodes()), 1))
		})},
		{Name: "ReqTRES", Width: 10, Text: job(func(c *Context, r Row) string { return c.Tres(r.GetReqTres()) })},
		{Name: "Reservation", Width: 20, Text: spec((*msg.JobSpec).GetReservation)},
		{Name: "ReservationId", Width: 8, Text: fixed("")},
		{Name: "Reserved", Width: 10, Text: job(func(c *Context, r Row) string { return timespec.Clock(r.planned(c)) })},
		{Name: "ResvCPU", Width: 10, Text: job(func(c *Context, r Row) string { return timespec.Clock(r.plannedCPU(c)) })},
		{Name: "ResvCPURAW", Width: 10,
			Text: job(func(c *Context, r Row) string { return strconv.FormatInt(max(r.plannedCPU(c), 0), 10) })},
		{Name: "Start", Width: 19, Text: func(c *Context, r Row) string { return when(c, r.start(c)) }},
		{Name: "State", Width: 10, Text: both(Row.State)},
		{Name: "Submit", Width: 19, Text: func(c *Context, r Row) string {
			if r.Step != "" {
				return when(c, r.start(c))
			}
			return when(c, r.GetSubmitNs())
		}},
		{Name: "SubmitLine", Width: 20, Text: both(func(r Row) string {
			if r.Step != "" {
				return r.made.GetSpec().GetSubmitLine()
			}
			return r.GetSpec().GetSubmitLine()
		})},
		{Name: "Suspended", Width: 10, Text: func(c *Context, r Row) string { return timespec.Clock(r.suspended(c)) }},
		{Name: "SystemComment", Width: 15, Text: job(func(_ *Context, r Row) string { return r.GetSystemComment() })},
		{Name: "SystemCPU", Width: 10, Text: both(func(r Row) string { _, s := r.cpu(); return cpuTime(s) })},
		{Name: "Timelimit", Width: 10, Text: job(func(_ *Context, r Row) string {
			if r.GetTimeLimitS() == msg.Unlimited {
				return "UNLIMITED"
			}
			return timespec.ClockMinutes((int64(r.GetTimeLimitS()) + 59) / 60)
		})},
		{Name: "TimelimitRaw", Width: 10, Text: job(func(_ *Context, r Row) string {
			if r.GetTimeLimitS() == msg.Unlimited {
				return "UNLIMITED"
			}
			return strconv.FormatInt((int64(r.GetTimeLimitS())+59)/60, 10)
		})},
		{Name: "TotalCPU", Width: 10, Text: both(func(r Row) string { u, s := r.cpu(); return cpuTime(u + s) })},
	}
}

func or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// name is the name of the job or step.
func (r Row) name() string {
	switch {
	case r.made != nil:
		return or(r.made.GetSpec().GetName(), r.Step)
	case r.Step != "":
		return r.Step
	}
	return r.GetSpec().GetName()
}

func allocTres(c *Context, r Row) string {
	if r.made != nil {
		return c.Tres(r.made.GetAllocTres())
	}
	if r.Step == "" {
		return c.Tres(r.GetAllocTres())
	}
	if r.Step == "extern" {
		return c.Tres(r.GetAllocTres())
	}
	a := r.share()
	list := "cpu=" + number(uint64(a.GetCpus())) + ",mem=" + number(a.GetMemMib()) + "M,node=1"
	counts := map[string]uint64{}
	var names []string
	for _, d := range a.GetDevices() {
		if counts[d.GetName()] == 0 {
			names = append(names, d.GetName())
		}
		counts[d.GetName()] += uint64(max(d.GetCount(), d.GetShare(), 1))
	}
	for _, n := range names {
		list += ",gres/" + n + "=" + number(counts[n])
	}
	return c.Tres(list)
}

// derived is the highest exit code of the steps, without the batch script's (sacct(1)).
func derived(_ *Context, r Row) string {
	if r.stopped() && r.GetDerivedStatus() < 0x100 { // the signal that ended the whole job
		return format.ExitCode(0)
	}
	return format.ExitCode(r.GetDerivedStatus())
}

// flags says which scheduler started the job; the second word has 22.05's spelling.
func flags(_ *Context, r Row) string {
	if r.GetScheduler() == "" || len(r.GetAlloc()) == 0 {
		return "StartRecieved"
	}
	return "Sched" + r.GetScheduler() + ",StartRecieved"
}

func group(c *Context, r Row) string {
	if g := r.GetSpec().GetGroup(); g != "" {
		return g
	}
	if c.GroupOf != nil {
		return c.GroupOf(r.GetSpec().GetGid())
	}
	return number(uint64(r.GetSpec().GetGid()))
}

func nodeList(r Row) string {
	if r.made != nil {
		return r.made.GetNodeList()
	}
	if r.Step == "batch" {
		return r.GetBatchHost()
	}
	return or(r.GetNodeList(), "None assigned")
}

func partition(_ *Context, r Row) string {
	if len(r.GetAlloc()) == 0 && r.GetSpec().GetPartition() != "" {
		return r.GetSpec().GetPartition()
	}
	return r.GetPartition()
}

// reqCPUs is the number of CPUs requested.
func (r Row) reqCPUs() uint64 {
	if r.Step != "" {
		return r.cpus()
	}
	for part := range strings.SplitSeq(r.GetReqTres(), ",") {
		if n, ok := strings.CutPrefix(part, "cpu="); ok {
			if v, err := strconv.ParseUint(n, 10, 64); err == nil {
				return v
			}
		}
	}
	return r.cpus()
}

// reqMem is the total memory requested, as in the mem of ReqTRES.
func reqMem(c *Context, r Row) string {
	list := c.Tres(r.GetReqTres())
	for part := range strings.SplitSeq(list, ",") {
		if m, ok := strings.CutPrefix(part, "mem="); ok {
			return m
		}
	}
	return "0"
}

// planned is how long the job waited since its eligible time, in seconds; negative if it never became eligible.
func (r Row) planned(c *Context) int64 {
	if r.GetEligibleNs() == 0 {
		return 0
	}
	to := r.start(c)
	if to == 0 {
		to = c.now()
	}
	return to/1e9 - r.GetEligibleNs()/1e9
}

func (r Row) plannedCPU(c *Context) int64 { return r.planned(c) * int64(r.reqCPUs()) }

func newerFields() []Field {
	return []Field{
		{Name: "UID", Width: 6, Text: job(func(_ *Context, r Row) string { return number(uint64(r.GetSpec().GetUid())) })},
		{Name: "User", Width: 9, Text: job(func(_ *Context, r Row) string { return r.GetSpec().GetUser() })},
		{Name: "UserCPU", Width: 10, Text: both(func(r Row) string { u, _ := r.cpu(); return cpuTime(u) })},
		{Name: "WCKey", Width: 10, Text: spec((*msg.JobSpec).GetWckey)},
		{Name: "WCKeyID", Width: 10, Text: job(fixed("0"))},
		{Name: "WorkDir", Width: 20, Text: spec((*msg.JobSpec).GetWorkDir)},
		{Name: "Extra", Width: 14, Text: spec((*msg.JobSpec).GetExtra), Newer: true},
		{Name: "FailedNode", Width: 20, Text: job(func(_ *Context, r Row) string { return r.GetFailedNode() }), Newer: true},
		{Name: "Licenses", Width: 20, Text: spec((*msg.JobSpec).GetLicenses), Newer: true},
		{Name: "Planned", Width: 10, Text: job(func(c *Context, r Row) string { return timespec.Clock(r.planned(c)) }), Newer: true},
		{Name: "PlannedCPU", Width: 10, Text: job(func(c *Context, r Row) string { return timespec.Clock(r.plannedCPU(c)) }), Newer: true},
		{Name: "PlannedCPURAW", Width: 13,
			Text: job(func(c *Context, r Row) string { return strconv.FormatInt(max(r.plannedCPU(c), 0), 10) }), Newer: true},
		{Name: "QOSREQ", Width: 10, Text: spec((*msg.JobSpec).GetQos), Newer: true},
		{Name: "Restarts", Width: 8, Text: job(func(_ *Context, r Row) string { return number(uint64(r.GetRestarts())) }), Newer: true},
		{Name: "StdErr", Width: 20, Text: job(func(_ *Context, r Row) string { return format.StdErr(r.JobRecord) }), Newer: true},
		{Name: "StdIn", Width: 20, Text: job(func(_ *Context, r Row) string { return format.StdIn(r.JobRecord) }), Newer: true},
		{Name: "StdOut", Width: 20, Text: job(func(_ *Context, r Row) string { return format.StdOut(r.JobRecord) }), Newer: true},
	}
}
