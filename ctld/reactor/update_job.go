package reactor

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdateJob is scontrol update JobId=….
type UpdateJob struct {
	Caller Caller
	IDs    []string
	Set    []*pb.KeyValue
	Ends   Ends // of jobs that a dependency names

	walk   *walk // the rest of an earlier slice, and the number of conditions that the search for cycles may still visit
	cycles int
	// throttles are the arrays whose throttle this command has set, each once, however many of its records are named.
	throttles []throttle
}

// Handle changes each job, or gives the reason why not.
func (c UpdateJob) Handle(tx *state.Tx) any {
	w, cycles := walk{ids: c.IDs}, maxCycleWalk
	if c.walk != nil {
		w, cycles = *c.walk, c.cycles
	}
	w.out.Seq = tx.Seq
	from := tx.Spent()
	spent := func() bool { return tx.Spent()-from >= SliceUnits }
	if c.throttles = slices.Clone(c.throttles); !throttleAll(tx, c.throttles, spent) {
		c.walk, c.cycles = &w, cycles
		return More{c}
	}
	f := newFinder(tx, c.Caller)
	begin := func(id string) (*application, []*pb.JobOutcome) {
		t, p := f.find(id)
		if p != nil {
			return nil, []*pb.JobOutcome{outcome(unbracketed(id), p)}
		}
		return newApplication(tx, c.Caller, id, t), nil
	}
	verb := func(_ *application, j *pb.JobRecord) *pb.Problem { return c.one(tx, j, &cycles) }
	if !w.each(tx, c.Caller, begin, verb, (*application).outcomes) || !throttleAll(tx, c.throttles, spent) {
		c.walk, c.cycles = &w, cycles
		return More{c}
	}
	return w.done()
}

// The cost of an update of one record beside its events: the checks of its texts, and admitting it again.
const (
	unitsOfEdit   = 20
	unitsOfSettle = 80
)

// jobEdit is a job under change: the clone, and whether its request changed, so that it has to be admitted again.
type jobEdit struct {
	tx      *state.Tx
	caller  Caller
	job     *pb.JobRecord // a clone with a specification of its own
	pending bool
	readmit bool
	// throttled: the throttle of the whole array changed
	throttled bool
	walk      *int // conditions that the search for cycles may still visit
	ends      Ends
}

func (c *UpdateJob) one(tx *state.Tx, j *pb.JobRecord, walk *int) *pb.Problem {
	if !c.Caller.mayTouch(j) {
		return c.Caller.Refused(pb.CodeUserID, j)
	}
	if !state.Active(j) {
		return pb.NewProblem(pb.CodeFinished, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	e := &jobEdit{tx: tx, caller: c.Caller, job: state.CloneJob(j), pending: state.Pending(j), walk: walk, ends: c.Ends}
	e.job.Spec = state.CloneSpec(j.Spec)
	tx.Spend(unitsOfEdit + 2*len(c.Set))
	for _, kv := range c.Set {
		if p := e.set(kv.Key, kv.Value); p != nil {
			return p
		}
	}
	already := e.throttled && slices.ContainsFunc(c.throttles, func(t throttle) bool { return t.array == j.ArrayJobId })
	if already { // possibly another client has set another one since
		e.job.ArrayThrottle = j.ArrayThrottle
		rethrottle(e.job)
	}
	if p := admit.Text(e.job.Spec); p != nil {
		return p
	}
	if e.readmit {
		if p := Deadline(tx.NowNS, e.job.Spec, 0); p != nil {
			return p
		}
		tx.Spend(unitsOfSettle)
		if p := admit.Settle(tx.View(), e.job, e.job.Priority == 0); p != nil {
			return p
		}
		if p := limit.Refuses(tx.View(), e.job, j); p != nil && !c.Caller.Operator {
			return p
		}
	}
	if p := bytesFor(tx, j.Spec.Uid, j.Spec.User, state.JobBytes(e.job)-state.JobBytes(j), c.Caller.Operator); p != nil {
		return p
	}
	tx.Emit(state.JobChanged{Job: e.job, What: "updated"})
	if e.job.Dependency != j.Dependency {
		settleNew(tx, e.job)
	}
	if e.job.Spec.Name != j.Spec.Name {
		followName(tx, j.Spec)
	}
	if e.throttled && !already {
		c.throttles = append(c.throttles, throttle{array: j.ArrayJobId, limit: e.job.ArrayThrottle}.begin(tx))
	}
	return nil
}

// onlyPending refuses keys that a running job can no longer change.
func (e *jobEdit) onlyPending(key string) *pb.Problem {
	if e.pending {
		e.readmit = true
		return nil
	}
	return pb.NewProblem(pb.CodeNotPending, "%s of job %d can only be changed while it is pending", key, e.job.Id)
}

// operators refuses keys that an ordinary user may not set.
func (e *jobEdit) operators(key string) *pb.Problem {
	if e.caller.Operator {
		return nil
	}
	return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may set %s", key)
}

func (e *jobEdit) set(key, value string) *pb.Problem {
	if f, ok := jobSetters[strings.ToLower(strings.TrimRight(key, "+-"))]; ok {
		return f(e, key, value)
	}
	return pb.NewProblem(pb.CodeNotSupported, "Update of this parameter is not supported: %s=%s", key, value)
}

type jobSetter = func(e *jobEdit, key, value string) *pb.Problem

// jobSetters are the keys of scontrol update for jobs (scontrol(1), "update" for job).
var jobSetters map[string]jobSetter

func init() {
	text := func(field func(*pb.JobSpec) *string) jobSetter {
		return func(e *jobEdit, _, value string) *pb.Problem {
			*field(e.job.Spec) = value
			return nil
		}
	}
	pendingText := func(field func(*pb.JobSpec) *string) jobSetter {
		return func(e *jobEdit, key, value string) *pb.Problem {
			*field(e.job.Spec) = value
			return e.onlyPending(key)
		}
	}
	pendingCount := func(field func(*pb.JobSpec) *uint32) jobSetter {
		return func(e *jobEdit, key, value string) *pb.Problem {
			if p := setCount(field(e.job.Spec), key, value); p != nil {
				return p
			}
			return e.onlyPending(key)
		}
	}
	jobSetters = map[string]jobSetter{
		"timelimit": setTimeLimit, "timemin": setTimeMin, "nice": setNice, "priority": setPriority, "requeue": setRequeue,
		"starttime": setStart, "eligibletime": setStart, "deadline": setDeadline, "numnodes": setNodes, "reqnodes": setNodes,
		"minmemorynode": setMemory, "minmemorycpu": setMemory,
		"jobname": text(func(s *pb.JobSpec) *string { return &s.Name }), "name": text(func(s *pb.JobSpec) *string { return &s.Name }),
		"comment": text(func(s *pb.JobSpec) *string { return &s.Comment }), "extra": text(func(s *pb.JobSpec) *string { return &s.Extra }),
		"wckey": text(func(s *pb.JobSpec) *string { return &s.Wckey }), "mailuser": setMailUser,
		"admincomment": adminText,
		"account":      pendingText(func(s *pb.JobSpec) *string { return &s.Account }),
		"qos":          pendingText(func(s *pb.JobSpec) *string { return &s.Qos }),
		"partition":    setPartitions, "features": pendingText(func(s *pb.JobSpec) *string { return &s.Features }),
		"reqnodelist":     pendingText(func(s *pb.JobSpec) *string { return &s.ReqNodes }),
		"nodelist":        pendingText(func(s *pb.JobSpec) *string { return &s.ReqNodes }),
		"excnodelist":     pendingText(func(s *pb.JobSpec) *string { return &s.ExcNodes }),
		"workdir":         pendingText(func(s *pb.JobSpec) *string { return &s.WorkDir }),
		"stdout":          pendingText(func(s *pb.JobSpec) *string { return &s.StdOut }),
		"stderr":          pendingText(func(s *pb.JobSpec) *string { return &s.StdErr }),
		"stdin":           pendingText(func(s *pb.JobSpec) *string { return &s.StdIn }),
		"licenses":        pendingText(func(s *pb.JobSpec) *string { return &s.Licenses }),
		"reservation":     pendingText(func(s *pb.JobSpec) *string { return &s.Reservation }),
		"reservationname": pendingText(func(s *pb.JobSpec) *string { return &s.Reservation }),
		"numtasks":        pendingCount(func(s *pb.JobSpec) *uint32 { return &s.NumTasks }),
		"reqprocs":        pendingCount(func(s *pb.JobSpec) *uint32 { return &s.NumTasks }),
		"reqsockets":      pendingCount(func(s *pb.JobSpec) *uint32 { return &s.SocketsPerNode }),
		"reqcores":        pendingCount(func(s *pb.JobSpec) *uint32 { return &s.CoresPerSocket }),
		"reqthreads":      pendingCount(func(s *pb.JobSpec) *uint32 { return &s.ThreadsPerCore }),
		"taskspernode":    pendingCount(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerNode }),
		"cpus/task":       pendingCount(func(s *pb.JobSpec) *uint32 { return &s.CpusPerTask }),
		"cpuspertask":     pendingCount(func(s *pb.JobSpec) *uint32 { return &s.CpusPerTask }),
		"mincpusnode":     pendingCount(func(s *pb.JobSpec) *uint32 { return &s.PnMinCpus }),
		"numcpus":         setNumCPUs,
		"dependency":      setDependency, "arraytaskthrottle": setThrottle,
		"contiguous":    setContiguous,
		"oversubscribe": setSharing, "shared": setSharing,
	}
	moreSetters()
}

func adminText(e *jobEdit, _, value string) *pb.Problem {
	e.job.Spec.AdminComment = value
	return e.operators("AdminComment")
}

// setTimeLimit takes a time, or an increment with += and -= (the key ends in + or -). Users may only shorten the limit of a
// running job.
func setTimeLimit(e *jobEdit, key, value string) *pb.Problem {
	m, err := timespec.ParseMinutes(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "TimeLimit=%s: %v", value, err)
	}
	limit := limitSeconds(m)
	cur := e.job.TimeLimitS
	switch {
	case strings.HasSuffix(key, "+"): // an unlimited job stays unlimited
		limit = uint32(min(uint64(cur)+uint64(limit), uint64(pb.Unlimited)))
	case strings.HasSuffix(key, "-"):
		if cur == pb.Unlimited || limit >= cur {
			return pb.NewProblem(pb.CodeInvalidTimeLimit, "cannot take %s from the limit of job %d, which is %s", value, e.job.Id,
				limitText(cur))
		}
		limit = cur - limit
	}
	if !e.caller.Operator && limit > cur {
		if !e.pending {
			return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may extend the limit of a running job")
		}
		if part := e.tx.Partition(e.job.Partition); part != nil && limit > part.MaxTimeS {
			return pb.NewProblem(pb.CodeAccessDenied, "partition %s allows %s; only root and SlurmUser may exceed it", part.Name,
				limitText(part.MaxTimeS))
		}
	}
	from := limitFrom(e.job)
	e.job.Spec.TimeLimitS, e.job.TimeLimitS = limit, limit
	if !e.pending && e.job.StartNs > 0 && e.job.StopReason == "" { // EndNs of a job that is being stopped is the time of the order
		e.job.EndNs = 0
		if limit != pb.Unlimited {
			e.job.EndNs = from + int64(limit)*1e9
		}
	}
	return nil
}

// limitFrom returns the moment from which a running job's limit counts, ignoring suspension: its start, or the end of PrologSlurmctld. The
// latter can only be derived from the end of a limited job.
func limitFrom(j *pb.JobRecord) int64 {
	if j.EndNs != 0 && j.TimeLimitS != pb.Unlimited {
		return j.EndNs - int64(j.TimeLimitS)*1e9
	}
	return j.StartNs + j.SuspendedNs
}

func limitText(seconds uint32) string {
	if seconds == pb.Unlimited {
		return "UNLIMITED"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func setTimeMin(e *jobEdit, key, value string) *pb.Problem {
	if p := setMinutes(&e.job.Spec.TimeMinS, key, value); p != nil {
		return p
	}
	return e.onlyPending(key)
}

func setNice(e *jobEdit, _, value string) *pb.Problem {
	n, err := strconv.ParseInt(value, 10, 32)
	if value == "" {
		n, err = 100, nil
	}
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "Nice=%s is not a number", value)
	}
	if n < 0 && !e.caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may set a negative nice value")
	}
	e.job.Spec.Nice = int32(n)
	e.readmit = e.readmit || e.pending
	return nil
}

// setPriority fixes a priority; 0 holds the job. Only operators may raise it.
func setPriority(e *jobEdit, _, value string) *pb.Problem {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return pb.NewProblem(pb.CodeInvalidSpec, "Priority=%s is not a number below 4294967295", value)
	}
	switch {
	case n == 0 && e.job.Priority == 0 && e.job.HoldAdmin && !e.caller.Operator:
		return nil // the administrator's hold stays
	case n == 0:
		e.job.Priority, e.job.HoldAdmin = 0, e.caller.Operator
		if e.pending {
			e.job.Reason = pb.ReasonHeldUser
			if e.caller.Operator {
				e.job.Reason = pb.ReasonHeldAdmin
			}
		}
		return nil
	case e.job.Priority == 0:
		return pb.NewProblem(pb.CodeJobHeld, "job %s is held", state.JobName(e.job)).WithHint("scontrol release releases it")
	case !e.caller.Operator && (uint32(n) > e.job.Priority || e.job.HoldAdmin):
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may raise a priority")
	case !e.caller.Operator:
		return pb.NewProblem(pb.CodePriorityReset, "only root and SlurmUser may fix a priority").WithHint("nice= lowers it")
	}
	e.job.Priority, e.job.Spec.Priority, e.job.HoldAdmin = uint32(n), uint32(n), false
	return nil
}

func setRequeue(e *jobEdit, _, value string) *pb.Problem {
	var yes bool
	if p := setBool(&yes, "Requeue", value); p != nil {
		return p
	}
	e.job.Spec.Requeue = pb.No
	if yes {
		e.job.Spec.Requeue = pb.Yes
	}
	return nil
}

func moment(key, value string) (int64, *pb.Problem) {
	t, err := timespec.ParseUnix(value)
	if err != nil {
		return 0, pb.NewProblem(pb.CodeInvalidTime, "%s=%s: %v", key, value, err)
	}
	return t.UnixNano(), nil
}

func setStart(e *jobEdit, key, value string) *pb.Problem {
	t, p := moment(key, value)
	if p != nil {
		return p
	}
	e.job.Spec.BeginNs, e.job.BeginDelayed = t, false
	if t <= e.tx.NowNS {
		e.job.Spec.BeginNs = 0 // it may start at once
	}
	e.job.EligibleNs = max(t, e.job.SubmitNs)
	if e.job.AccrueNs > e.tx.NowNS {
		e.job.AccrueNs = accrueFrom(e.tx, e.job, max(t, e.tx.NowNS))
	}
	return e.onlyPending(key)
}

func setDeadline(e *jobEdit, key, value string) *pb.Problem {
	t, p := moment(key, value)
	if p != nil {
		return p
	}
	if p := e.operators(key); p != nil {
		return p
	}
	if t <= e.tx.NowNS {
		return pb.NewProblem(pb.CodeInvalidTime, "the %s has passed", strings.ToLower(key))
	}
	e.job.Spec.DeadlineNs = t
	return e.onlyPending(key)
}

func setNodes(e *jobEdit, key, value string) *pb.Problem {
	lo, hi, isRange := strings.Cut(value, "-")
	a, err := strconv.ParseUint(lo, 10, 32)
	b := a
	if err == nil && isRange {
		b, err = strconv.ParseUint(hi, 10, 32)
	}
	if err != nil || a == 0 || b < a {
		return pb.NewProblem(pb.CodeNodeCount, "%s=%s is neither a count nor a range", key, value)
	}
	if e.job.Spec.MinNodes = uint32(a); isRange || e.job.Spec.MaxNodes < uint32(a) {
		e.job.Spec.MaxNodes = uint32(b)
	}
	return e.onlyPending(key)
}

// setNumCPUs takes a count, or a range, of which the minimum is used.
func setNumCPUs(e *jobEdit, key, value string) *pb.Problem {
	var n uint32
	least, _, _ := strings.Cut(value, "-")
	if p := setCount(&n, key, least); p != nil {
		return p
	}
	each := uint64(max(e.job.Spec.CpusPerTask, 1))
	e.job.Spec.NumTasks = uint32((uint64(n) + each - 1) / each)
	return e.onlyPending(key)
}

func setMemory(e *jobEdit, key, value string) *pb.Problem {
	mib, err := parseMiB(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s: %v", key, value, err)
	}
	s := e.job.Spec
	s.MemPerNodeMib, s.MemPerCpuMib, s.MemPerGpuMib, s.MemAll = 0, 0, 0, false
	if strings.EqualFold(key, "minmemorycpu") {
		s.MemPerCpuMib = mib
	} else {
		s.MemPerNodeMib, s.MemAll = mib, mib == 0
	}
	return e.onlyPending(key)
}

func setPartitions(e *jobEdit, key, value string) *pb.Problem {
	if value == "" {
		return pb.NewProblem(pb.CodeInvalidPartition, "%s= does not name a partition", key)
	}
	e.job.Spec.Partition = value
	return e.onlyPending(key)
}

func setContiguous(e *jobEdit, key, value string) *pb.Problem {
	if p := setBool(&e.job.Spec.Contiguous, key, value); p != nil {
		return p
	}
	if e.job.Spec.Contiguous {
		if p := e.operators(key); p != nil {
			return p
		}
	}
	return e.onlyPending(key)
}

func setSharing(e *jobEdit, key, value string) *pb.Problem {
	var yes bool
	if p := setBool(&yes, key, value); p != nil {
		return p
	}
	if p := e.operators(key); p != nil {
		return p
	}
	e.job.Spec.Sharing = "exclusive"
	if yes {
		e.job.Spec.Sharing = "oversubscribe"
	}
	return e.onlyPending(key)
}
