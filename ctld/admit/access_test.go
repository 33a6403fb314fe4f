package admit

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestAccess: who may submit to a partition. The codes are those of a real Slurm 22.05.
func TestAccess(t *testing.T) {
	for _, c := range []struct {
		what    string
		part    *pb.PartitionRecord
		spec    *pb.JobSpec
		enforce bool // EnforcePartLimits=ALL
		want    pb.Code
	}{
		{"open", &pb.PartitionRecord{}, &pb.JobSpec{}, true, 0},
		{"without a reservation", &pb.PartitionRecord{ReqResv: true}, &pb.JobSpec{}, false, pb.CodeAccessDenied},
		{"from another host", &pb.PartitionRecord{AllowAllocNodes: "login[1-2]"}, &pb.JobSpec{AllocNode: "n3"}, false, pb.CodeAccessDenied},
		{"from its host", &pb.PartitionRecord{AllowAllocNodes: "login[1-2]"}, &pb.JobSpec{AllocNode: "login2"}, false, 0},
		{"of root", &pb.PartitionRecord{DisableRootJobs: true}, &pb.JobSpec{}, false, pb.CodeUserID},
		{"for root", &pb.PartitionRecord{RootOnly: true}, &pb.JobSpec{Uid: 1}, false, pb.CodeAccessDenied},
		{"of another account", &pb.PartitionRecord{AllowAccounts: "abc,def"}, &pb.JobSpec{Account: "x"}, false, 0},
		{"of another account, enforced", &pb.PartitionRecord{AllowAccounts: "abc,def"}, &pb.JobSpec{Account: "x"}, true,
			pb.CodeInvalidAccount},
		{"of its account", &pb.PartitionRecord{AllowAccounts: "abc,def"}, &pb.JobSpec{Account: "DEF"}, true, 0},
		{"of no account", &pb.PartitionRecord{DenyAccounts: DefaultAccount}, &pb.JobSpec{}, true, pb.CodeInvalidAccount},
		{"of another QOS", &pb.PartitionRecord{AllowQos: "high"}, &pb.JobSpec{}, true, pb.CodeInvalidQOS},
		{"of a denied QOS", &pb.PartitionRecord{DenyQos: "low,normal"}, &pb.JobSpec{}, true, pb.CodeInvalidQOS},
	} {
		c.part.Name, c.part.State, c.part.MaxTimeS, c.part.MaxNodes = "p", "UP", pb.Unlimited, pb.Unlimited
		v := state.New(&state.Config{Settings: &state.Settings{EnforcePartLimits: map[bool]string{true: "ALL", false: "NO"}[c.enforce]},
			Default: "p", Partitions: []*pb.PartitionRecord{c.part},
			PartitionNodes: map[string][]string{"p": {"n1"}}, Nodes: []*pb.NodeRecord{{Name: "n1", Cpus: 1}}}, "c", 1)
		if _, p := Job(v, c.spec, ""); p.GetCode() != uint32(c.want) {
			t.Errorf("%s: %v, want code %d", c.what, p, c.want)
		}
	}
	v := state.New(&state.Config{Settings: &state.Settings{DisableRootJobs: true}, Default: "p",
		Partitions: []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited}}}, "c", 1)
	if _, p := Job(v, &pb.JobSpec{}, ""); p.GetCode() != uint32(pb.CodeUserID) {
		t.Errorf("root where DisableRootJobs is set: %v", p)
	}
}

// TestBarred: the words in which a real Slurm 22.05 says it of a job that waits.
func TestBarred(t *testing.T) {
	for want, p := range map[string]*pb.PartitionRecord{
		"Job's account not permitted to use this partition (rtest allows abc not root)":        {AllowAccounts: "abc"},
		"Job's account not permitted to use this partition (rtest denies root including root)": {DenyAccounts: "root"},
		"Job's QOS not permitted to use this partition (rtest allows zzz not normal)":          {AllowQos: "zzz"},
		"Job's QOS not permitted to use this partition (rtest denies normal including normal)": {DenyQos: "normal"},
	} {
		p.Name = "rtest"
		if got := Barred(p, &pb.JobSpec{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
