package admit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// assocDefaults fills in what a new job leaves open and its association has a default for: the partition, and the type of its GPUs. Its
// time limit follows (limit.Time). What a job has is judged as if its user had said it.
func assocDefaults(v *state.View, spec *pb.JobSpec) *pb.Problem {
	fillAccount(v.Policy(), spec)
	if spec.Partition == "" {
		a := cmp.Or(v.Policy().AssocOf(spec.User, state.AccountOf(spec), ""), Association(v, spec))
		name := v.Policy().JobDefaultsOf(a).Partition
		if name != "" && v.Partition(name) == nil {
			return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q, which is the DefaultPartition in account %s", name,
				spec.Account).WithHint("use one of: %s", partitionNames(v))
		}
		spec.Partition = name
	}
	if typ := v.Policy().JobDefaultsOf(Association(v, spec)).GPUType; typ != "" {
		gpuType(v, spec, typ)
	}
	return nil
}

// gpuType gives the GPUs of a job a type where nothing in it says which they have to be and its partitions have such.
func gpuType(v *state.View, spec *pb.JobSpec, typ string) {
	if spec.Features != "" || spec.ReqNodes != "" {
		return
	}
	typed := gresParts(spec) // with the type; the same where there are no GPUs
	for i, text := range typed {
		var out []string
		gpus := false
		for _, g := range convert.Gres(*text) {
			if g.Name == "gpu" && g.Type != "" {
				return
			}
			if g.Name == "gpu" && g.Count > 0 {
				g.Type, gpus = typ, true
			}
			out = append(out, "gres/"+g.String())
		}
		if list := strings.Join(out, ","); gpus {
			typed[i] = &list
		}
	}
	has := func(partition string) bool {
		return slices.ContainsFunc(v.PartitionNodes(partition), func(name string) bool { return v.Node(name).HasGPUs(typ) })
	}
	if typed == gresParts(spec) || !slices.ContainsFunc(strings.Split(convert.PartitionList(v, spec), ","), has) {
		return
	}
	for i, text := range gresParts(spec) {
		*text = *typed[i]
	}
}
