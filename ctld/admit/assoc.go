package admit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// assocDefaults sets open values of a new job for which its association has a default: the partition, and the type of its GPUs. The time
// limit follows later (limit.Time). These values are checked as if the user had set them.
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

// gpuType sets the type of a job's GPUs if nothing in the job restricts it and its partitions have that type.
func gpuType(v *state.View, spec *pb.JobSpec, typ string) {
	if spec.Features != "" || spec.ReqNodes != "" {
		return
	}
	typed := gresParts(spec) // with the type; equal if there are no GPUs
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
