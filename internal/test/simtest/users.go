package simtest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// submission is a job as its user sees it: submitted with the same request id until it is acknowledged.
type submission struct {
	n      int
	spec   *pb.JobSpec
	script script
	id     uint32 // once acknowledged
	tasks  int    // tasks of an array
	bound  bool   // it has named its dependency
	first  *pb.FirstStep

	depends string // its dependency, unless changed since
	on      uint32
}

var operator = reactor.Caller{UID: 0, Operator: true}

func (s *sim) newSubmission(n int) *submission {
	sub := &submission{n: n, script: s.anyScript()}
	sub.spec = &pb.JobSpec{Name: "job", Uid: 1000 + uint32(s.rng.IntN(3)), User: "u", NumTasks: 1,
		CpusPerTask: 1 + uint32(s.rng.IntN(nodeCPUs)),
		TimeLimitS:  uint32(30 + s.rng.IntN(600)), Requeue: uint32(s.rng.IntN(3)), Comment: strconv.Itoa(n), Hold: s.chance(0.05),
		NoKill: s.chance(0.3)}
	if s.chance(0.3) {
		sub.spec.MinNodes = 1 + uint32(s.rng.IntN(len(s.nodes)))
		sub.spec.MaxNodes, sub.spec.NumTasks = sub.spec.MinNodes, sub.spec.MinNodes
	}
	if s.chance(0.1) {
		sub.spec.BeginNs = s.now + int64(s.between(0, 2*time.Minute))
	}
	s.work.dress(s, sub)
	sub.spec.Interactive = sub.spec.Array == "" && s.chance(0.1)
	if sub.spec.Interactive && s.chance(0.7) { // by srun, else by salloc
		sub.first = &pb.FirstStep{RequestId: fmt.Sprintf("first-%d", n), Spec: &pb.StepSpec{Name: "step"}}
	}
	return sub
}

func (s *sim) anyScript() script {
	sc := script{run: s.between(0, 2*time.Minute), verdict: "exited", onTERM: s.rng.IntN(3)}
	switch {
	case s.chance(0.3):
		sc.run = s.between(0, 100*time.Millisecond)
	case s.chance(0.2):
		sc.run = s.between(0, 10*time.Minute)
	}
	if s.chance(0.2) {
		sc.lingers = s.between(0, 3*time.Second)
	}
	switch s.rng.IntN(8) {
	case 0, 1:
		sc.status = uint32(1+s.rng.IntN(255)) << 8
	case 2:
		sc.verdict, sc.status = "signaled", 11
	case 3:
		sc.verdict, sc.status = "oom", 9
	case 4:
		sc.verdict = "output_failed"
	}
	return sc
}

// scriptOf returns what a launch's batch script does, or how the rest of a multi-node job behaves.
func (s *sim) scriptOf(l *pb.LaunchSpec) script {
	if l.Step != nil {
		return s.stepScript()
	}
	if !l.Batch {
		return script{}
	}
	n, err := strconv.Atoi(string(l.Script))
	if err != nil || strconv.Itoa(n) != l.Spec.Comment {
		s.fail("job %d was launched with the script of another: %q", l.Key.JobId, l.Script)
		return script{}
	}
	return s.subs[n].script
}

// submit sends the job until it is acknowledged: after a lost answer it repeats the request.
func (s *sim) submit(sub *submission) {
	if sub.id != 0 {
		return
	}
	if c := s.ctl; c != nil {
		s.submitTo(c, sub)
	}
	s.after(s.between(500*time.Millisecond, 20*time.Second), func() { s.submit(sub) })
}

func (s *sim) submitTo(c *controller, sub *submission) {
	s.work.bind(s, sub, c.View())
	spec := state.CloneSpec(sub.spec)
	j, p := admit.Job(c.View(), spec, fmt.Sprintf("request-%d", sub.n))
	switch {
	case p.GetCode() == uint32(pb.CodeNodeConfig) && spec.Reservation != "": // for a reservation that is too small
		sub.spec.Reservation = ""
		return
	case p != nil:
		s.fail("submission %d was refused: %v", sub.n, p)
		return
	}
	j.FirstStep = sub.first
	texts, err := state.PackTexts(j.Spec.Uid, []byte(strconv.Itoa(sub.n)), []string{"A=b"})
	if err != nil {
		s.fail("%w", err)
		return
	}
	c.send(reactor.Submit{Job: j, Texts: texts, Layout: c.View().Layout}, func(r any) {
		done, ok := r.(reactor.Submitted)
		if p, refused := r.(*pb.Problem); refused && pb.Code(p.Code) == pb.CodeDependency {
			sub.spec.Dependency, sub.depends = "", "" // its dependency was forgotten meanwhile
		}
		if !ok {
			return // full disk; tried again
		}
		if sub.id != 0 && sub.id != done.ID {
			s.fail("submission %d was acknowledged as job %d and as job %d", sub.n, sub.id, done.ID)
		}
		if sub.id == 0 {
			s.logf("submission %d is job %d: %d CPUs, %d nodes, runs %v, requeue=%d", sub.n, done.ID, sub.spec.CpusPerTask,
				sub.spec.MinNodes, sub.script.run, sub.spec.Requeue)
		}
		sub.id = done.ID
		s.witness.acknowledged(done.ID, sub)
	})
}

// meddle makes somebody do something to some job.
func (s *sim) meddle() {
	if s.calm {
		return
	}
	s.after(s.between(0, s.meddling), s.meddle)
	sub := s.subs[s.rng.IntN(len(s.subs))]
	if s.ctl == nil || sub.id == 0 {
		return
	}
	id := s.anyID(sub)
	by := operator
	if s.chance(0.5) {
		by = reactor.Caller{UID: sub.spec.Uid}
	}
	switch s.rng.IntN(10) {
	case 0, 1:
		s.witness.cancelled[sub.id] = true
		s.order(reactor.Cancel{Caller: by, IDs: []string{id}})
	case 2:
		s.order(reactor.Cancel{Caller: by, IDs: []string{id}, Signal: 10, Full: true})
	case 3:
		s.change(sub, id)
	default:
		verbs := []string{"hold", "release", "requeue", "requeuehold", "suspend", "resume"}
		verb := verbs[s.rng.IntN(len(verbs))]
		if verb == "suspend" || verb == "resume" {
			by = operator
		}
		s.order(reactor.Control{Caller: by, Verb: verb, IDs: []string{id}})
	}
}

// order sends a user's command and tells the witness when it was carried out.
func (s *sim) order(cmd reactor.Command) {
	s.ctl.send(cmd, func(r any) {
		if o, ok := r.(reactor.Outcomes); ok {
			for _, x := range o.List {
				s.logf("user: %T %s -> %v", cmd, words(cmd), x.Problem)
			}
		}
	})
}

func words(cmd reactor.Command) string {
	switch c := cmd.(type) {
	case reactor.Control:
		return fmt.Sprint(c.Verb, " ", c.IDs)
	case reactor.Cancel:
		return fmt.Sprint("signal ", c.Signal, " ", c.IDs)
	case reactor.UpdateJob:
		return fmt.Sprint(c.Set[0].Value, " ", c.IDs)
	}
	return ""
}

func (s *sim) setNode(m *machine, value string) {
	if s.ctl == nil {
		return
	}
	down := 0
	if value == "DOWN" || value == "POWER_DOWN_FORCE" {
		down = 1
	}
	s.witness.downing[m.name] += down
	answers := value == "RESUME" && s.ctl.View().Node(m.name).UntoldNs != 0 // for ends that a node has forgotten from before a restore
	if value == "DOWN" || answers {
		s.witness.givenUp[m.name] = s.ctl.View().Restored
	}
	s.ctl.send(reactor.UpdateNode{Caller: operator, UserName: "root", Nodes: []string{m.name},
		Set: []*pb.KeyValue{{Key: "State", Value: value}, {Key: "Reason", Value: "simulated"}}},
		func(any) { s.witness.downing[m.name] -= down })
}

// repair undoes, in the calm, what users and faults have left: held and suspended jobs, nodes out of service.
func (s *sim) repair() {
	s.after(20*time.Second, s.repair)
	for _, m := range s.nodes {
		m.away = false
		m.start()
	}
	c := s.ctl
	if c == nil {
		return
	}
	for _, n := range c.View().Nodes() {
		if n.UntoldNs != 0 {
			s.witness.stats.Seen["forgetful node"]++
			s.witness.givenUp[n.Name] = c.View().Restored
			c.send(reactor.UpdateNode{Caller: operator, UserName: "root", Nodes: []string{n.Name}, Set: []*pb.KeyValue{
				{Key: "State", Value: "RESUME"}, {Key: "Reason", Value: "its jobs have been looked at"}}}, nil)
		}
		const power = state.PowerFlags | pb.NodeCloud | pb.NodePowerUpPending | pb.NodePowerDownPending
		if n.StateFlags&^(pb.NodeNoRespond|power) != 0 || n.State == pb.NodeState_NODE_DOWN {
			c.send(reactor.UpdateNode{Caller: operator, UserName: "root", Nodes: []string{n.Name},
				Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}}, nil)
		}
	}
	s.settleJobs()
	for j := range c.View().Jobs.All() {
		id := strconv.Itoa(int(j.Id))
		switch {
		case !state.Active(j):
		case j.Priority == 0:
			s.order(reactor.Control{Caller: operator, Verb: "release", IDs: []string{id}})
		case j.State == pb.JobState_JOB_SUSPENDED:
			s.order(reactor.Control{Caller: operator, Verb: "resume", IDs: []string{id}})
		}
	}
}
