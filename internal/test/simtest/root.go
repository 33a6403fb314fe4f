package simtest

import (
	"errors"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/bundle"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The simulated noded-root: it answers the requests of lifecycle.Steps from the machine's spool.

var errPlanned = errors.New("as planned")

// answer carries out a request.
func (m *machine) answer(r *nodepb.Request) (*nodepb.Answer, error) {
	switch what := r.What.(type) {
	case *nodepb.Request_Prepare:
		return &nodepb.Answer{Devices: what.Prepare.Devices}, nil
	case *nodepb.Request_Hook:
		return m.hook(what.Hook)
	case *nodepb.Request_Launch:
		return m.launched(what.Launch.Bundle)
	case *nodepb.Request_Fail:
		m.failed(what.Fail)
	case *nodepb.Request_Control:
		k := agent.KeyOf(what.Control.Key)
		m.s.logf("%s: %s of %s", m.name, what.Control.Want, keyWords(k))
		if m.s.faulty(m.s.faults.control) {
			return nil, errPlanned
		}
		if sh := m.spool[k]; sh != nil {
			sh.order(what.Control)
		}
	case *nodepb.Request_Forget:
		if m.s.faulty(m.s.faults.control) {
			return nil, errPlanned
		}
		m.forget(agent.KeyOf(what.Forget.Key))
	case *nodepb.Request_History:
		return m.history(what.History.Above), nil
	case *nodepb.Request_Check:
		if m.unfit {
			return &nodepb.Answer{Fault: errPlanned.Error()}, nil
		}
	default:
		m.s.fail("%s: nobody answers %T", m.name, what)
	}
	return &nodepb.Answer{}, nil
}

// welcome returns the state for a new daemon, after dead shims were cleaned up.
func (m *machine) welcome() (ended []*pb.StepKey, have []*nodepb.Known) {
	for _, k := range sortedKeys(m.past) {
		ended = append(ended, k.Proto())
	}
	for _, k := range sortedKeys(m.spool) {
		sh := m.spool[k]
		if sh.exit == nil && sh.killed {
			sh.bury()
		}
		b := &pb.Bundle{Key: k.Proto(), Job: m.of[k], LimitS: sh.bundle.GetLimitS(), BegunBootNs: sh.bundle.GetBegunBootNs()}
		if !sh.refused {
			b.Cgroup = "of the step"
		}
		have = append(have, &nodepb.Known{Report: sh.report(), Bundle: b, Launch: m.launches[k]})
	}
	return ended, have
}

// hook runs one of the administrator's programs.
func (m *machine) hook(h *nodepb.Hook) (*nodepb.Answer, error) {
	k := agent.KeyOf(h.Key)
	m.s.logf("%s: %s of %s", m.name, h.Kind, keyWords(k))
	switch h.Kind {
	case nodepb.HookKind_HOOK_PROLOG:
		m.launches[k] = h.Remember
		if k.Holder() && m.s.faulty(m.s.faults.prolog) {
			return &nodepb.Answer{}, errPlanned
		}
	case nodepb.HookKind_HOOK_EPILOG:
		m.s.witness.epilogued(stepAt{k, m.name})
		if m.s.faulty(m.s.faults.prolog) {
			return &nodepb.Answer{Failed: errPlanned.Error()}, nil
		}
	}
	return &nodepb.Answer{}, nil
}

// bundle notes a launch and describes it.
func (m *machine) bundle(l *pb.LaunchSpec) *pb.Bundle {
	m.launching[agent.KeyOf(l.Key)] = l
	return &pb.Bundle{Key: l.Key, Cgroup: "of the step", LimitS: l.LimitS, Job: bundle.JobOf(l)}
}

// launched makes a shim accept a step.
func (m *machine) launched(b *pb.Bundle) (*nodepb.Answer, error) {
	k := agent.KeyOf(b.Key)
	m.s.logf("%s: launches %s", m.name, keyWords(k))
	if m.past[k] != nil {
		return &nodepb.Answer{Refused: true}, errors.New("this attempt has run on this node already")
	}
	if m.unfit {
		m.s.witness.stats.Seen["launch that fails"]++
		return nil, errPlanned
	}
	l := m.launching[k]
	delete(m.launching, k)
	if k.Holder() {
		m.of[k] = b.Job
	}
	m.told(m.launch(k, b, l))
	return &nodepb.Answer{}, nil
}

// failed records the end of a step that never began. An earlier end stands.
func (m *machine) failed(f *nodepb.Fail) {
	k, x := agent.KeyOf(f.Exit.Key), f.Exit
	b := privsep.Brief(f.Bundle)
	delete(m.launching, k)
	if was := m.past[k]; was != nil {
		x = was
	} else if x.Verdict == "unknown" && k.Epoch <= m.gone.LostUpTo {
		x.Verdict = "forgotten"
		m.s.witness.stats.Seen["forgotten"]++
	}
	m.s.witness.knows(stepAt{k, m.name}, x)
	if k.Holder() && b.Job != nil {
		m.of[k] = b.Job
	}
	sh := &shim{m: m, key: k, bundle: b, phase: pb.StepPhase_STEP_ENDED, exit: x, refused: b.Cgroup == ""}
	m.spool[k] = sh
	m.s.witness.ended(sh)
	m.told(sh)
}

// forget deletes a step, and remembers how the attempt ended.
func (m *machine) forget(k agent.Key) {
	sh := m.spool[k]
	if sh != nil && sh.exit == nil {
		m.s.fail("%s forgets %s, which has not ended", m.name, keyWords(k))
	}
	if sh != nil && k.Holder() {
		m.remember(k, sh.exit)
	}
	delete(m.spool, k)
	delete(m.launches, k)
}

// history returns the ends of attempts that are gone.
func (m *machine) history(above uint64) *nodepb.Answer {
	a := &nodepb.Answer{}
	for _, k := range sortedKeys(m.past) {
		if k.Epoch > above {
			a.Ended = append(a.Ended, &pb.StepReport{Key: k.Proto(), Phase: pb.StepPhase_STEP_ENDED, Exit: m.past[k], Job: m.of[k]})
		}
	}
	if g := &m.gone; g.LostUpTo > above {
		a.LostUpTo, a.LostUntilNs = g.LostUpTo, g.LostUntilNs
	}
	return a
}

// report returns noded-root's report on a step.
func (sh *shim) report() *pb.StepReport {
	return &pb.StepReport{Key: sh.key.Proto(), Phase: sh.phase, SignalsSeen: sh.seen, Exit: sh.exit}
}
