package simtest

import (
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// witness watches from outside: the processes, and what the controller publishes.
type witness struct {
	s    *sim
	hash hash.Hash64

	view      *state.View
	before    *state.View              // the one before view
	jobs      map[uint32]*pb.JobRecord // as last published
	highest   uint32                   // id
	forgotten map[uint32]bool
	acks      map[uint32]*submission
	cancelled map[uint32]bool   // somebody requested it
	submitted map[string]uint32 // number of a submission -> its job

	steps      map[stepAt]*step
	outcomes   map[uint32]map[pb.JobState]bool // terminal states that a job has had
	began      map[uint32]bool
	starts     map[attempt]began
	touched    map[uint32]int64 // when the record of a job last changed
	tasksEnded map[uint32]map[uint32]bool
	startedNS  int64            // when the current controller started
	paused     map[attempt]bool // was suspended: other jobs may have its CPUs, and it shares them after it resumes
	ends       map[ending]bool
	harmed     map[attempt]string // why an attempt may end as NODE_FAIL
	excused    map[stepAt]bool    // its share was freed because the node was DOWN
	freedAt    map[stepAt]bool    // its share was freed
	jobSteps   map[uint32]*state.JobSteps
	stepEnds   map[state.StepKey]bool
	givenBack  map[uint32]uint32      // returned allocations without a script, with the status
	boots      map[attemptNode]string // boot in which the share was given
	stats      Stats
	fresh      bool                     // a backup was restored, and no state was seen since
	waited     map[uint32]*pb.JobRecord // jobs that waited in the backup, as they were
	heard      map[string]uint64        // up to which commit nodes had reported their steps in the backup
	givenUp    map[string]uint64        // nodes for which an administrator has answered, and up to which commit
	told       map[stepAt]bool          // what accounting has learnt since about jobs not in the backup

	unlinked, outage map[string]int64 // since when, and for how long, a node is or was without a stream
	downing          map[string]int   // orders under way to set a node DOWN
	wakes            map[string]began // since when a node has been powering up
	overdue          map[string]bool  // it was still powering up at the end of ResumeTimeout
}

type stepAt struct {
	agent.Key
	node string
}

type attempt struct {
	job, attempt uint32
	epoch        uint64
}

type attemptNode struct {
	attempt
	node string
}

// ending identifies a terminal record: a requeued job ends once more.
type ending struct{ job, attempt, restarts uint32 }

// step is one step attempt: its processes and its record.
type step struct {
	at        stepAt
	sh        *shim
	cpus      state.Cores
	share     *pb.NodeAlloc
	overlaps  bool // a step that shares its resources
	partition string
	live      bool
	rec       *pb.ExitRecord
	began     bool // its processes have existed
	epilogued bool
	wiped     bool // its node has lost its disk since
}

func newWitness(s *sim) *witness {
	return &witness{s: s, hash: fnv.New64a(), jobs: map[uint32]*pb.JobRecord{}, forgotten: map[uint32]bool{},
		acks: map[uint32]*submission{}, cancelled: map[uint32]bool{}, submitted: map[string]uint32{},
		outcomes: map[uint32]map[pb.JobState]bool{}, began: map[uint32]bool{}, starts: map[attempt]began{}, touched: map[uint32]int64{},
		tasksEnded: map[uint32]map[uint32]bool{},
		paused:     map[attempt]bool{}, steps: map[stepAt]*step{}, ends: map[ending]bool{}, harmed: map[attempt]string{},
		excused: map[stepAt]bool{}, freedAt: map[stepAt]bool{}, told: map[stepAt]bool{},
		jobSteps: map[uint32]*state.JobSteps{}, stepEnds: map[state.StepKey]bool{}, givenBack: map[uint32]uint32{},
		boots: map[attemptNode]string{}, stats: Stats{Ends: map[string]int{}, Seen: map[string]int{}},
		unlinked: map[string]int64{}, outage: map[string]int64{}, downing: map[string]int{},
		wakes: map[string]began{}, overdue: map[string]bool{},
		waited: map[uint32]*pb.JobRecord{}, heard: map[string]uint64{}, givenUp: map[string]uint64{}}
}

func attemptOf(j *pb.JobRecord) attempt { return attempt{j.Id, j.Attempt, j.Epoch} }

func (k stepAt) attempt() attempt { return attempt{k.Job, k.Attempt, k.Epoch} }

func stepOf(j *pb.JobRecord, node string) stepAt {
	return stepAt{agent.Key{Job: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: state.HolderOn(j, node)}, node}
}

// note adds a fact to the hash of the run and to the trace.
func (w *witness) note(format string, args ...any) {
	fmt.Fprintf(w.hash, "%d ", w.s.now)
	fmt.Fprintf(w.hash, format, args...)
	w.s.logf(format, args...)
}

// started notes that a step has processes from now on.
func (w *witness) started(m *machine, sh *shim, l *pb.LaunchSpec) {
	at := stepAt{sh.key, m.name}
	w.note("%s: %s runs", m.name, keyWords(at.Key))
	if w.steps[at] != nil {
		w.s.fail("%s starts for a second time on %s", keyWords(at.Key), m.name)
		return
	}
	w.startedLost(at)
	st := &step{at: at, sh: sh, live: true, began: true, partition: l.Partition}
	for _, a := range l.Alloc {
		if a.Node == m.name {
			st.cpus, _ = state.ParseCores(a.CpuIds)
			st.share = a
		}
	}
	if l.Step != nil {
		st.share = nil // its resources are its allocation's
		w.startedStep(st, l)
	}
	w.steps[at] = st
	w.stats.Starts++
	if w.freedAt[at] && !w.isExcused(at) {
		w.s.fail("%s starts on %s after its share was freed", keyWords(at.Key), m.name)
	}
	if j := w.jobs[at.Job]; !w.isExcused(at) && (j == nil || attemptOf(j) != at.attempt()) {
		w.s.fail("%s starts on %s, but the job is %v", keyWords(at.Key), m.name, j)
	}
	for _, o := range w.steps {
		if o.live && o != st {
			w.beside(st, o)
		}
	}
	w.room(st)
}

// beside checks a starting step against a live one. An attempt given up with its node may be alive elsewhere, but one node never
// runs two attempts of a job.
func (w *witness) beside(st, o *step) {
	excused := w.isExcused(o.at) || w.isExcused(st.at)
	if w.missed(o.at) && o.at.Epoch >= w.givenUp[o.at.node] {
		excused = false // all nodes have reported
	}
	if o.at.Job == st.at.Job && o.at.attempt() != st.at.attempt() && (!excused || o.at.node == st.at.node) {
		w.s.fail("%s starts on %s while %s is alive on %s", keyWords(st.at.Key), st.at.node, keyWords(o.at.Key), o.at.node)
	}
}

// ended notes that the exit record of a step is on disk, even of one that never began.
func (w *witness) ended(sh *shim) {
	at := stepAt{sh.key, sh.m.name}
	w.note("%s: %s has ended: %s", sh.m.name, keyWords(at.Key), exitWords(sh.exit))
	st := w.steps[at]
	if st == nil {
		st = &step{at: at, sh: sh}
		w.steps[at] = st
	}
	if st.rec != nil && sh.refused {
		return // the answer to a late order; the step's first end stands
	}
	if st.rec != nil && !w.isExcused(at) {
		w.s.fail("%s has a second exit record on %s: %s after %s", keyWords(at.Key), sh.m.name, exitWords(sh.exit), exitWords(st.rec))
	}
	st.live, st.rec = false, sh.exit
	if sh.exit.Verdict == pb.VerdictNodeFailed {
		w.harmed[at.attempt()] = "its node could not start it"
	}
}

// vanished notes that the processes are gone without a record.
func (w *witness) vanished(sh *shim) {
	at := stepAt{sh.key, sh.m.name}
	w.note("%s: %s is gone without a record", sh.m.name, keyWords(at.Key))
	w.steps[at].live = false
	w.harmed[at.attempt()] = "its processes vanished"
}

// wiped notes that the spool's record of a step is lost.
func (w *witness) wiped(sh *shim) {
	w.harmed[attempt{sh.key.Job, sh.key.Attempt, sh.key.Epoch}] = "its spool was lost"
}

func (w *witness) shimDied(sh *shim) {
	w.harmed[attempt{sh.key.Job, sh.key.Attempt, sh.key.Epoch}] = "its shim died"
}

func (w *witness) acknowledged(id uint32, sub *submission) {
	w.acks[id] = sub
	if w.jobs[id] == nil && !w.forgotten[id] {
		w.s.fail("job %d is acknowledged and not there", id)
	}
}

// committed checks the changes of every commit.
func (w *witness) committed(c state.Change) {
	w.before, w.view = w.view, c.View
	w.recalled(c)
	if len(c.Jobs)+len(c.Nodes)+len(c.Stepped) == 0 {
		return
	}
	w.stats.Commits++
	if err := c.View.Check(); err != nil {
		w.s.fail("the state is not sound: %w", err)
	}
	for _, n := range c.View.Nodes() {
		w.link(n, w.s.now)
		w.wake(n, w.s.now)
	}
	w.capacity(c.View)
	ids := slices.Clone(c.Jobs)
	slices.Sort(ids)
	for _, id := range ids {
		w.touched[id] = w.s.now
		w.change(id, c.View)
	}
	for _, id := range c.Stepped {
		w.stepped(id, c.View)
	}
}

// link tracks how long a node has been without a stream.
func (w *witness) link(n *state.Node, nowNS int64) {
	if n.LinkUp {
		w.outage[n.Name] = 0
		if since := w.unlinked[n.Name]; since != 0 {
			w.outage[n.Name], w.unlinked[n.Name] = nowNS-since, 0
		}
		return
	}
	if w.unlinked[n.Name] == 0 {
		w.unlinked[n.Name] = nowNS
	}
	w.outage[n.Name] = nowNS - w.unlinked[n.Name]
}

// change compares a job with its previous state.
func (w *witness) change(id uint32, v *state.View) {
	old, now := w.jobs[id], v.Jobs.Get(id)
	if old == now {
		return
	}
	w.jobs[id] = now
	switch {
	case now == nil:
		delete(w.jobs, id)
		w.forgotten[id] = true
		if state.Active(old) {
			w.s.fail("an active job is forgotten: %s", jobWords(old))
		}
		return
	case old == nil:
		if id <= w.highest {
			w.s.fail("job id %d is used again", id)
		}
		w.highest = id
		first := w.submitted[now.Spec.Comment]
		if w.forgotten[first] && w.s.clocks.boot > 0 { // nobody knows how long ago that was
			first = 0
		}
		if first != 0 && now.ArrayJobId != first {
			w.s.fail("submission %s became job %d and job %d", now.Spec.Comment, first, id)
		}
		if first == 0 {
			w.submitted[now.Spec.Comment] = id
		}
		w.note("%s is new", jobWords(now))
		if state.Pending(now) && now.Attempt == 0 {
			return
		}
		old = &pb.JobRecord{Id: id, State: pb.JobState_JOB_PENDING, Spec: now.Spec} // a task that was split off to be started, or ended
	}
	w.note("%s", jobWords(now))
	if old.PreemptedBy == "" && now.PreemptedBy != "" {
		w.stats.Seen["preempted by "+now.State.String()]++
	}
	if now.State == pb.JobState_JOB_SUSPENDED {
		w.paused[attemptOf(now)] = true
	}
	w.attempts(old, now, v)
	for _, a := range now.Alloc {
		if a.BootId != "" { // known only once a node was powered up
			w.boots[attemptNode{attemptOf(now), a.Node}] = a.BootId
		}
	}
	w.shares(old, now, v)
	switch {
	case !state.Active(old) && now.Restarts == old.Restarts && (now.State != old.State || now.ExitStatus != old.ExitStatus):
		w.s.fail("a terminal record changed: %s was %s", jobWords(now), jobWords(old))
	case !state.Active(now) && (state.Active(old) || now.Restarts > old.Restarts):
		w.terminal(old, now)
	}
	if now.Restarts > old.Restarts {
		w.stats.Requeues++
	}
}

func (w *witness) attempts(old, now *pb.JobRecord, v *state.View) {
	switch {
	case now.Attempt == old.Attempt && now.Epoch == old.Epoch:
	case v.FromBackup(now.Epoch) && now.Epoch > old.Epoch: // lost in a restore, and found
		w.stats.Seen["found attempt"]++
	case now.Attempt != old.Attempt+1 || now.Epoch <= old.Epoch:
		w.s.fail("attempts are not in order: %s epoch %d was %s epoch %d", jobWords(now), now.Epoch, jobWords(old), old.Epoch)
	case !state.Pending(old):
		w.s.fail("an attempt begins before the last has ended: %s was %s", jobWords(now), jobWords(old))
	default:
		if x := w.cameTo(now.Id); x != nil {
			w.s.fail("%s starts again, its script has ended before the restore: %s", jobWords(now), exitWords(x))
		}
		w.began[now.Id] = true
		if v == w.view { // not for a commit that nobody was told of
			w.starts[attemptOf(now)] = began{w.s.now, w.s.clocks.boot}
		}
		if len(now.Alloc) > 0 { // else it was started and given up in one commit
			w.allowed(now, v)
			w.firstStep(old, now, v)
		}
		for _, a := range now.Alloc {
			w.boots[attemptNode{attemptOf(now), a.Node}] = a.BootId
		}
	}
}

// shares checks the nodes that the job has just left.
func (w *witness) shares(old, now *pb.JobRecord, v *state.View) {
	free := map[string]bool{}
	j := now
	switch {
	case old.Attempt != now.Attempt:
		for _, a := range now.Alloc {
			free[a.Node] = a.Ended
		}
	default:
		if len(now.Alloc) == 0 {
			j = old
		}
		for _, a := range old.Alloc {
			free[a.Node] = !a.Ended
		}
		for _, a := range now.Alloc {
			free[a.Node] = free[a.Node] && a.Ended
		}
	}
	for node, is := range free {
		if is {
			w.freed(stepOf(j, node), v.Node(node))
		}
	}
}

func (w *witness) freed(at stepAt, n *state.Node) {
	w.freedAt[at] = true
	// and back in the same commit
	down := n.State == pb.NodeState_NODE_DOWN || w.outage[at.node] >= nodeTimeout*1e9 || w.downing[at.node] > 0
	if down {
		w.excused[at] = true
		w.harmed[at.attempt()] = "node " + at.node + " was DOWN"
	}
	if w.overdue[at.node] { // DOWN, but it may have come back in the same commit
		w.harmed[at.attempt()] = "node " + at.node + " was not up in time"
	}
	if boot := w.boots[attemptNode{at.attempt(), at.node}]; boot != "" && n.BootId != boot {
		w.harmed[at.attempt()] = "node " + at.node + " was rebooted"
	}
	w.freedSteps(at, down)
	st := w.steps[at]
	if st != nil && st.live && !down {
		w.s.fail("the share of %s on %s is free, but it is alive", keyWords(at.Key), at.node)
	}
	if st != nil && st.began && !st.epilogued && w.s.epilog && !w.isExcused(at) && w.harmed[at.attempt()] == "" {
		w.s.fail("the share of %s on %s is free, but its epilog has not run", keyWords(at.Key), at.node)
	}
}

// epilogued notes that the epilog of an attempt has run; it may also have run under an earlier daemon.
func (w *witness) epilogued(at stepAt) {
	w.note("%s: epilog of %s", at.node, keyWords(at.Key))
	st := w.steps[at]
	if st == nil || st.live || st.rec == nil {
		w.s.fail("the epilog of %s runs on %s before its end", keyWords(at.Key), at.node)
		return
	}
	w.stats.Seen["epilog"]++
	st.epilogued = true
}

// terminal checks a terminal record against the facts.
func (w *witness) terminal(old, now *pb.JobRecord) {
	end := ending{now.Id, now.Attempt, now.Restarts}
	if w.ends[end] {
		w.s.fail("a second terminal record: %s", jobWords(now))
	}
	w.ends[end] = true
	w.lengths(now)
	w.taskEnded(now)
	if w.outcomes[now.Id] == nil {
		w.outcomes[now.Id] = map[pb.JobState]bool{}
	}
	w.outcomes[now.Id][now.State] = true
	cancelled := w.cancelled[now.Id] || w.cancelled[now.ArrayJobId] || now.Reason == "DependencyNeverSatisfied" && now.DependencyNever
	w.stats.Terminal++
	w.stats.Ends[state.StateName(now)]++
	if now.Attempt == old.Attempt && (state.Pending(old) || now.Restarts > old.Restarts) { // it never started (again)
		w.expect(now, cancelled, pb.JobState_JOB_CANCELLED)
		return
	}
	harm := w.harmed[attemptOf(now)]
	batch := w.steps[stepOf(now, now.BatchHost)]
	var rec *pb.ExitRecord
	if batch != nil {
		rec = batch.rec
	}
	success := rec != nil && rec.Verdict == "exited" && rec.WaitStatus == 0 && !now.Spec.Interactive
	failed := w.failure(now)
	_, late := w.givenBack[now.Id] // and its time limit was reached meanwhile
	if status, gave := w.givenBack[now.Id]; gave {
		success = success || status == 0 && now.State == pb.JobState_JOB_COMPLETED
		failed = orElse(failed, "given back")
	}
	switch now.State {
	case pb.JobState_JOB_COMPLETED:
		w.expect(now, success, now.State)
	case pb.JobState_JOB_TIMEOUT:
		w.expect(now, rec.GetVerdict() == "timeout" || w.heldToTheEnd(now) || late, now.State)
	case pb.JobState_JOB_OUT_OF_MEMORY:
		w.expect(now, rec.GetVerdict() == "oom", now.State)
	case pb.JobState_JOB_FAILED:
		w.expect(now, failed != "", now.State)
		if rec != nil && now.FailedNode == "" && !now.Spec.Interactive && (rec.Verdict == "exited" && now.ExitStatus != rec.WaitStatus ||
			rec.Verdict == "signaled" && now.ExitStatus != rec.WaitStatus&0x7f) {
			w.s.fail("%s, but its script ended with %s", jobWords(now), exitWords(rec))
		}
	case pb.JobState_JOB_CANCELLED:
		w.expect(now, cancelled, now.State)
	case pb.JobState_JOB_PREEMPTED:
		w.expect(now, w.s.work.preempt != "" && now.PreemptedBy != "", now.State)
	case pb.JobState_JOB_NODE_FAIL:
		w.expect(now, harm != "", now.State)
	default:
		w.expect(now, false, now.State)
	}
	if success && now.State != pb.JobState_JOB_COMPLETED && harm == "" && !cancelled && now.State != pb.JobState_JOB_PREEMPTED &&
		failed == "" && !w.heldToTheEnd(now) {
		w.s.fail("%s, but its script ended well", jobWords(now))
	}
}

func (w *witness) expect(j *pb.JobRecord, ok bool, want pb.JobState) {
	if !ok || j.State != want {
		var recs []string
		for at, st := range w.steps {
			if at.attempt() == attemptOf(j) {
				recs = append(recs, at.node+": "+exitWords(st.rec))
			}
		}
		slices.Sort(recs)
		w.s.fail("%s, but nothing that happened says so: records %v, harm %q, cancelled %v", jobWords(j), recs, w.harmed[attemptOf(j)],
			w.cancelled[j.Id])
	}
}

// nodesOf returns the nodes of an attempt; for one found after a restore only one is known.
func nodesOf(j *pb.JobRecord) []string {
	nodes := []string{j.BatchHost}
	for _, a := range j.Alloc {
		nodes = append(nodes, a.Node)
	}
	return nodes
}

// failure returns a record of the attempt, on any of its nodes, by which it failed by itself.
func (w *witness) failure(j *pb.JobRecord) string {
	for _, node := range nodesOf(j) {
		if st := w.steps[stepOf(j, node)]; st != nil && st.rec != nil {
			switch r := st.rec; r.Verdict {
			case "exited":
				if r.WaitStatus != 0 {
					return exitWords(r)
				}
			case "signaled", "output_failed", "prolog_failed", "launch_failed":
				return exitWords(r)
			}
		}
	}
	return ""
}

// loaded compares what a new controller has loaded with what the last one had published.
func (w *witness) loaded(v *state.View) {
	if w.fresh {
		w.restored(v)
		return
	}
	unseen := w.s.unseen // the last commit is on disk and was not published
	w.s.unseen = false
	ids := map[uint32]bool{}
	for id := range w.jobs {
		ids[id] = true
	}
	for j := range v.Jobs.All() {
		ids[j.Id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		old, now := w.jobs[id], v.Jobs.Get(id)
		if unseen {
			if old == nil || now == nil || !proto.Equal(w.plain(old), w.plain(now)) {
				w.change(id, v)
			}
		} else if !proto.Equal(w.plain(old), w.plain(now)) {
			w.s.fail("job %d is not what it was before the crash:\n was %v\n now %v", id, old, now)
		}
		w.jobs[id] = now
	}
	w.loadedSteps(v, unseen)
	for id := range w.acks {
		if w.jobs[id] == nil && !w.forgotten[id] {
			w.s.fail("job %d was acknowledged and is lost", id)
		}
	}
	if v.NextJobID <= w.highest {
		w.s.fail("the next job id is %d, %d has been used", v.NextJobID, w.highest)
	}
	if err := v.Check(); err != nil {
		w.s.fail("the loaded state is not sound: %w", err)
	}
	if w.view != nil {
		w.stats.Crashes++
	}
	w.startedNS = w.s.now
	w.view = v
	clear(w.unlinked)
	clear(w.outage)
	clear(w.downing)
	for _, n := range v.Nodes() {
		w.link(n, w.s.now)
		w.wake(n, 0) // if the time is unknown
	}
}

// plain omits the fields of a waiting job that are shown but not stored and, if clocks were set, the times that move with them:
// rows written before a change of the clock are moved when they are loaded, and unstored observations of the clock are made anew.
func (w *witness) plain(j *pb.JobRecord) *pb.JobRecord {
	c := plain(j)
	if c == nil || !w.s.clocks.set || !state.Active(c) {
		return c
	}
	c = state.CloneJob(c)
	c.SubmitNs, c.EligibleNs, c.AccrueNs, c.StartNs, c.EndNs, c.SuspendNs, c.LastSchedNs, c.PreemptNs = 0, 0, 0, 0, 0, 0, 0, 0
	if c.BeginDelayed {
		c.Spec = state.CloneSpec(c.Spec)
		c.Spec.BeginNs = 0
	}
	return c
}

// plain leaves out what is only shown of a waiting job and not stored.
func plain(j *pb.JobRecord) *pb.JobRecord {
	if j == nil || j.State != pb.JobState_JOB_PENDING {
		return j
	}
	c := state.CloneJob(j)
	c.Reason, c.ReasonDetail, c.ExpectedStartNs, c.ExpectedNodes, c.LastSchedNs, c.WaitReason = "", "", 0, "", 0, ""
	return c
}

// strays looks for steps that were given up with their node and are still alive, long after the node has come back.
func (w *witness) strays() {
	for at, st := range w.steps {
		if st.live && w.isExcused(at) {
			w.s.fail("%s is still alive on %s, which was DOWN", keyWords(at.Key), at.node)
		}
	}
}

// final checks what is left when everything is at rest.
func (w *witness) final() {
	w.accounted()
	for id := range w.acks {
		if j := w.jobs[id]; j != nil && state.Active(j) {
			w.s.fail("at the end: %s", jobWords(j))
		}
	}
	for at, st := range w.steps {
		if st.live {
			w.s.fail("%s is still alive on %s", keyWords(at.Key), at.node)
		}
		if st.rec == nil && w.harmed[at.attempt()] == "" {
			w.s.fail("%s ended on %s without a record", keyWords(at.Key), at.node)
		}
	}
	for _, n := range w.view.Nodes() {
		if len(n.Jobs) > 0 || n.AllocCpus != 0 {
			w.s.fail("node %s is still allocated: %v", n.Name, n.Jobs)
		}
	}
}
