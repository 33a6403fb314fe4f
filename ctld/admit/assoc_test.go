package admit

import (
	"cmp"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// assocView has the account lab and ml below it with user u in both, and in lab once more for the partition big.
func assocView(lab, ml, u *pb.AssocRecord) *state.View {
	parts := []*pb.PartitionRecord{{Name: "p"}, {Name: "big"}, {Name: "closed", AllowAccounts: "other"}}
	for _, p := range parts {
		p.State, p.MaxTimeS, p.MaxNodes = "UP", pb.Unlimited, pb.Unlimited
	}
	v := state.New(&state.Config{Settings: &state.Settings{MaxArraySize: 1001, EnforcePartLimits: "ALL"}, Default: "p", Partitions: parts,
		PartitionNodes: map[string][]string{"p": {"g1"}, "big": {"g2"}, "closed": {"g1"}},
		Nodes: []*pb.NodeRecord{{Name: "g1", Cpus: 64, RealMemoryMib: 64000, Gres: "gpu:a100:8"},
			{Name: "g2", Cpus: 64, RealMemoryMib: 64000, Gres: "gpu:v100:8,gpu:t4:4,shard:32"}}}, "c", 1)
	tx := state.Begin(v, 1e9)
	d := tx.Policy().Draft()
	lab.Account, lab.Parent, ml.Account, ml.Parent, u.Account, u.User = "lab", "root", "ml", "lab", "ml", "u"
	d.Put(&pb.PolicyRow{User: &pb.UserRecord{Name: "u", DefaultAccount: "ml"}}, false)
	for i, a := range []*pb.AssocRecord{lab, ml, u, {Account: "lab", User: "u", Partition: "big"}} {
		a.Id = uint32(i + 3)
		d.Put(&pb.PolicyRow{Assoc: a}, false)
		d.Put(&pb.PolicyRow{Account: &pb.AccountRecord{Name: a.Account}}, false)
	}
	tx.Emit(state.PolicyChanged{Draft: d})
	v, _ = tx.Freeze()
	return v
}

// TestAssocDefaults: options that a job does not set come from its association, or from the nearest account above with a value.
func TestAssocDefaults(t *testing.T) {
	type assoc = pb.AssocRecord
	for name, tt := range map[string]struct {
		lab, ml, u *assoc
		spec       *pb.JobSpec
		want       string // partition and GPUs, or why it is refused
	}{
		"nothing":                {spec: &pb.JobSpec{}, want: ""},
		"of the user":            {u: &assoc{DefaultPartition: "big"}, ml: &assoc{DefaultPartition: "p"}, spec: &pb.JobSpec{}, want: "big"},
		"inherited":              {lab: &assoc{DefaultPartition: "big"}, spec: &pb.JobSpec{}, want: "big"},
		"not of a stranger":      {lab: &assoc{DefaultPartition: "big"}, spec: &pb.JobSpec{User: "x", Account: "lab"}, want: ""},
		"of another account":     {ml: &assoc{DefaultPartition: "big"}, spec: &pb.JobSpec{Account: "lab", Partition: "p"}, want: "p"},
		"named":                  {lab: &assoc{DefaultPartition: "big"}, spec: &pb.JobSpec{Partition: "p"}, want: "p"},
		"an unknown one":         {lab: &assoc{DefaultPartition: "gone"}, spec: &pb.JobSpec{}, want: `the DefaultPartition in account ml`},
		"as if it had been said": {lab: &assoc{DefaultPartition: "closed"}, spec: &pb.JobSpec{}, want: "closed allows other not ml"},
		"GPUs of the partition": {lab: &assoc{DefaultPartition: "big", DefaultGpuType: "v100"},
			spec: &pb.JobSpec{TresPerNode: "gres/gpu:2"}, want: "big gres/gpu:v100:2"},
		"GPUs by job":          {ml: &assoc{DefaultGpuType: "a100"}, spec: &pb.JobSpec{TresPerJob: "gres/gpu:2"}, want: " gres/gpu:a100:2"},
		"GPUs without a count": {ml: &assoc{DefaultGpuType: "a100"}, spec: &pb.JobSpec{TresPerNode: "gres/gpu"}, want: " gres/gpu:a100:1"},
		"GPUs by task and in all": {ml: &assoc{DefaultGpuType: "a100"},
			spec: &pb.JobSpec{TresPerJob: "gres/gpu:4", TresPerTask: "gres/gpu:2"}, want: " gres/gpu:a100:2,gres/gpu:a100:4"},
		"typed GPUs": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{TresPerNode: "gres/gpu:a100:2"}, want: " gres/gpu:a100:2"},
		"one has a type": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{Partition: "big", TresPerNode: "gres/gpu:t4:1",
			TresPerJob: "gres/gpu:1"}, want: "big gres/gpu:t4:1,gres/gpu:1"},
		"other resources": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{Partition: "big", TresPerNode: "gres/shard:2"},
			want: "big gres/shard:2"},
		"no GPUs": {ml: &assoc{DefaultGpuType: "a100"}, spec: &pb.JobSpec{TresPerJob: "gres/gpu:0"}, want: " gres/gpu:0"},
		"the partition has no such GPUs": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{TresPerNode: "gres/gpu:2"},
			want: " gres/gpu:2"},
		"another partition has": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{Partition: "p,big", TresPerNode: "gres/gpu:2"},
			want: "p,big gres/gpu:v100:2"},
		"named nodes": {ml: &assoc{DefaultGpuType: "v100"}, spec: &pb.JobSpec{Partition: "big", ReqNodes: "g2",
			TresPerNode: "gres/gpu:2"}, want: "big gres/gpu:2"},
		"unreadable": {ml: &assoc{DefaultGpuType: "a100"}, spec: &pb.JobSpec{TresPerNode: "gres/gpu:x:y:z", TresPerJob: "gres/gpu:1"},
			want: "gpu:x:y:z"},
	} {
		if tt.spec.User == "" {
			tt.spec.User = "u"
		}
		for _, a := range []**assoc{&tt.lab, &tt.ml, &tt.u} {
			*a = cmp.Or(*a, &assoc{})
		}
		j, p := Job(assocView(tt.lab, tt.ml, tt.u), tt.spec, "")
		got := ""
		if p != nil {
			if got = p.Error(); !strings.Contains(got, tt.want) || tt.want == "" {
				t.Errorf("%s: %s, want %q", name, got, tt.want)
			}
			continue
		}
		var gpus []string
		for _, part := range gresParts(j.Spec) {
			if *part != "" {
				gpus = append(gpus, *part)
			}
		}
		got = strings.TrimSuffix(j.Spec.Partition+" "+strings.Join(gpus, ","), " ")
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
