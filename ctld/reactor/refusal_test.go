package reactor

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestRefusals: a job of a user whom every node refuses is refused at its submission, in words; as soon as one node takes them, it is not.
func TestRefusals(t *testing.T) {
	b := newBench(t, nil)
	says := func(node string, r *pb.Refusals) {
		h := hello(node, "boot1")
		h.Hello.Refusals = r
		b.do(h)
	}
	submit := func(uid uint32) string {
		j := &pb.JobRecord{Spec: &pb.JobSpec{Uid: uid, User: "u", Name: "j"}}
		if p, refused := b.do(Submit{Job: j}).(*pb.Problem); refused {
			return p.GetDetail()
		}
		return ""
	}
	strict := &pb.Refusals{Root: true, Below: 1000}
	says("n1", strict)
	says("n2", strict)
	for uid, want := range map[uint32]string{0: "jobs of root are refused by n[1-2] (AllowRootJobs in node.conf)",
		33: "jobs of uid 33 are refused by n[1-2] (MinimumUID in node.conf)", 1000: "", 65533: "", 65535: "",
		65534: "jobs of uid 65534 are refused by n[1-2] (MinimumUID in node.conf)"} {
		if got := submit(uid); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("uid %d: %q, want %q", uid, got, want)
		}
	}
	says("n2", nil)
	for _, uid := range []uint32{0, 33, 1000, 65534} {
		if got := submit(uid); got != "" {
			t.Errorf("uid %d with a node that refuses nobody: %q", uid, got)
		}
	}
	says("n2", &pb.Refusals{Below: 1 << 31}) // whatever it says, users are told apart up to a bound
	if got := b.view.Users(); got != (state.Users{Root: true, Below: 1 << 16}) {
		t.Errorf("users are told apart as %+v", got)
	}
}
