package root

import (
	"maps"
	"testing"

	"github.com/sluice-hpc/sluice/noded/privsep"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestEveryOrderHasARow: a request that is added without one is refused, and noticed here.
func TestEveryOrderHasARow(t *testing.T) {
	fields := (&nodepb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("what").Fields()
	kinds := map[protoreflect.Name]bool{}
	for i := range fields.Len() {
		name := fields.Get(i).Name()
		kinds[name] = true
		r, ok := table[name]
		switch {
		case !ok:
			t.Errorf("the request %s has no row", name)
		case r.needs == nil || r.most <= 0 || r.most > privsep.MaxWeight || r.policy == "" || (r.now == nil) == (r.do == nil):
			t.Errorf("the row of %s lacks something: it is done at once or answered, and says what it needs and what the policy judges",
				name)
		}
	}
	for name := range table {
		if !kinds[name] {
			t.Errorf("there is no request %s", name)
		}
	}
	if !kinds["launch"] || len(kinds) < 10 {
		t.Errorf("the test does not see the requests: %v", kinds)
	}
}

// bundleFields says of each field of a bundle why a noded-link that has been taken over gains nothing by it.
var bundleFields = map[string]string{
	"key":      "judged: numbers alone, of which the folder's and the cgroup's name follow",
	"cgroup":   "judged: the name that follows from the key",
	"uid":      "judged by the policy",
	"gid":      "judged by the policy",
	"groups":   "judged by the policy",
	"rlimits":  "no higher than noded-root's own",
	"devices":  "judged: of this node's inventory",
	"privacy":  "noded-root's to say",
	"room":     "noded-root's to say: of the same job and user",
	"limits":   "judged: without rules for devices; the rest limits the job",
	"argv":     "run as the user",
	"env":      "the user's",
	"dir":      "entered as the user",
	"std_in":   "opened as the user",
	"std_out":  "opened as the user",
	"std_err":  "opened as the user",
	"umask":    "the user's",
	"job_name": "words", "partition": "words",
	"job":         "words, told after a restore",
	"task_prolog": "judged as programs of root's are, and run as the user",
	"task_epilog": "judged as programs of root's are, and run as the user",
	"over_time_s": "when the job ends", "limit_s": "when the job ends",
	"begun_boot_ns": "when the job ends", "suspended_ns": "when the job ends",
	"kill_wait_s": "how the job ends", "unkillable_timeout_s": "how the job ends",
	"warn_signal": "of the job", "warn_seconds": "of the job", "warn_batch": "of the job",
	"hold_only": "nothing is run then", "cpus": "a figure",
	"container": "its devices are noded-root's to say; all else is made and entered as the user, by his own rights",
	"step": "its tasks are run as the user, bound to CPUs of the step's cgroup; the shim alone speaks to the addresses, and only to " +
		"who has the step's certificate",
}

// TestEveryFieldOfABundleIsJudged: one that is added needs a decision.
func TestEveryFieldOfABundleIsJudged(t *testing.T) {
	left := maps.Clone(bundleFields)
	fields := (&pb.Bundle{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if bundleFields[name] == "" {
			t.Errorf("what if noded-link sets %s to whatever it likes? Judge it in launch, or say here why it does not matter", name)
		}
		delete(left, name)
	}
	for name := range left {
		t.Errorf("there is no field %s", name)
	}
}
