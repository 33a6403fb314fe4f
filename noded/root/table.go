package root

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// row describes one kind of request: its form, the policy's checks, and its implementation.
type row struct {
	// most is the limit for a request's memory (privsep.Weight). A larger one ends the connection.
	most int64
	// needs checks the form of a request. A malformed one ends the connection.
	needs func(*nodepb.Request) error
	// policy says in words what the node's policy checks, for readers of this table.
	policy string
	// now runs at once, in order, and is not answered; do runs in a goroutine and is answered.
	now func(*session, *nodepb.Request)
	// login allows the request on a login host, where there are no steps.
	login bool
	do    func(*Root, context.Context, *nodepb.Request) (*nodepb.Answer, error)
}

// small is the limit for a request with a number or two.
const small = 4 << 10

// table has a row for each kind of request, by the name of its field. A request without a row is refused, and a test fails.
var table = map[protoreflect.Name]row{
	"settings": {most: privsep.MaxWeight, needs: nothing, policy: "programs and directories that it names are judged when they are used",
		now: func(s *session, o *nodepb.Request) { s.r.configure(o.GetSettings()) }},
	"prepare": {most: 1 << 20, needs: func(o *nodepb.Request) error { return wellFormed(o.GetPrepare().GetKey()) },
		policy: "the devices are in this node's own inventory",
		do:     (*Root).prepare},
	"launch": {most: 24 << 20, needs: func(o *nodepb.Request) error { return launchable(o.GetLaunch().GetBundle()) },
		policy: "who may run jobs here, and in which groups; TaskProlog and TaskEpilog; devices of the inventory, all others closed; " +
			"limits no higher than this daemon's",
		do: (*Root).launch},
	"fail": {most: 8 << 20, needs: func(o *nodepb.Request) error {
		f := o.GetFail()
		k := f.GetBundle().GetKey()
		return errors.Join(wellFormed(k), same(k, f.GetExit().GetKey()), group(f.GetBundle(), true))
	}, policy: "nothing runs", do: (*Root).fail},
	"control": {most: 64 << 10, needs: func(o *nodepb.Request) error {
		if o.GetControl().GetLaunch() != nil {
			return errors.New("a request about a running step has a launch")
		}
		return wellFormed(o.GetControl().GetKey())
	}, policy: "of a step that is here", do: (*Root).control},
	"forget": {most: 16 << 10, needs: func(o *nodepb.Request) error { return wellFormed(o.GetForget().GetKey()) },
		policy: "of a step that has ended", do: (*Root).forget},
	"hook": {most: privsep.MaxWeight, needs: hookNeeds, policy: "a program that only root can have changed; an environment that " +
		"describes the job and does nothing else; arguments only as the node's own slurm.conf has them",
		do: (*Root).hook},
	"look":  {most: small, needs: nothing, policy: "figures of this node's own steps", do: (*Root).look},
	"check": {most: small, needs: nothing, policy: "what is wrong with this node, in words", do: (*Root).findFault},
	"who":   {most: small, needs: nothing, policy: "the name of a user, which everybody may know", do: (*Root).who, login: true},
	"cancel": {most: small, needs: nothing, policy: "a request of the same connection", login: true,
		now: func(s *session, o *nodepb.Request) { s.cancel(o.GetCancel().GetId()) }},
	"make_key": {most: small, needs: nothing, policy: "a key of this host, which stays here until it has a certificate", login: true,
		do: (*Root).makeKey},
	"certify": {most: 64 << 10, needs: func(o *nodepb.Request) error {
		if c := o.GetCertify(); len(c.GetCertificate()) == 0 || len(c.GetAuthorities()) == 0 {
			return errors.New("it has no certificate, or none of an authority")
		}
		return nil
	}, policy: "for this host and the key that was made last; by an authority that this host believes, or that one of those has signed",
		login: true, do: (*Root).certify},
	"configuration": {most: 24 << 20, needs: func(o *nodepb.Request) error {
		if len(o.GetConfiguration().GetBundle()) == 0 {
			return errors.New("it has none")
		}
		return nil
	}, policy: "this host has no files of its own; signed by the controller; programs of it are judged when they are used",
		login: true, now: func(s *session, o *nodepb.Request) { s.r.takeConf(o.GetConfiguration()) }},
	"follow": {most: 16 << 10, needs: func(o *nodepb.Request) error {
		if f := o.GetFollow(); f.GetClusterId() == "" || f.GetGeneration() == 0 {
			return errors.New("it names no generation")
		}
		return nil
	}, policy: "no lower generation than this host has followed", login: true, do: (*Root).follow},
	"history": {most: small, needs: nothing, policy: "what this node remembers of its own jobs", do: (*Root).history},
	"reopen": {most: small, needs: nothing, policy: "the log that the node's own slurm.conf names", login: true,
		now: func(s *session, _ *nodepb.Request) { s.r.reopen() }},
	"stop": {most: small, needs: nothing, policy: "as scontrol shutdown; jobs go on", login: true, now: func(*session, *nodepb.Request) {}},
}

// rowOf returns a request's row, and an error if the request is malformed.
func rowOf(o *nodepb.Request) (row, error) {
	m := o.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("what"))
	if f == nil {
		return row{}, errors.New("a request is empty, or of a kind that this daemon does not know")
	}
	rw, ok := table[f.Name()]
	if !ok {
		return row{}, fmt.Errorf("a request %s has no row in the table", f.Name())
	}
	if err := rw.needs(o); err != nil {
		return row{}, fmt.Errorf("a request %s is not well-formed: %w", f.Name(), err)
	}
	return rw, nil
}

func nothing(*nodepb.Request) error { return nil }

// wellFormed checks a step's key. Its name, a directory of the spool, consists of numbers alone.
func wellFormed(k *pb.StepKey) error {
	if k.GetJobId() == 0 {
		return errors.New("it names no step")
	}
	return nil
}

func same(a, b *pb.StepKey) error {
	if agent.KeyOf(a) != agent.KeyOf(b) {
		return errors.New("it speaks of two steps")
	}
	return nil
}

func hookNeeds(o *nodepb.Request) error {
	h := o.GetHook()
	switch h.GetKind() {
	case nodepb.HookKind_HOOK_PROLOG:
		if l := h.GetRemember(); l != nil {
			return errors.Join(wellFormed(h.Key), same(h.Key, l.Key))
		}
		return wellFormed(h.Key)
	case nodepb.HookKind_HOOK_EPILOG, nodepb.HookKind_HOOK_UNKILLABLE:
		return wellFormed(h.Key)
	case nodepb.HookKind_HOOK_HEALTH:
		return nil
	case nodepb.HookKind_HOOK_REBOOT:
		if h.Program == "" {
			return errors.New("it names no program")
		}
		return nil
	}
	return fmt.Errorf("there is no hook of kind %v", h.GetKind())
}
