package prolog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// environment returns the environment of a program: the variables of Slurm 22.05, and those by which commands find this controller. Users
// choose no name in it.
func environment(epilog bool, j *pb.JobRecord, s Settings) []string {
	spec := j.GetSpec()
	env := append([]string{"PATH=" + program.Path}, s.Env...)
	set := func(name, value string) { env = append(env, name+"="+value) }
	num := func(name string, n uint32) { set(name, strconv.FormatUint(uint64(n), 10)) }
	given := func(name, value string) {
		if value != "" {
			set(name, value)
		}
	}
	set("SLURM_SCRIPT_CONTEXT", map[bool]string{false: "prolog_slurmctld", true: "epilog_slurmctld"}[epilog])
	set("SLURM_CLUSTER_NAME", s.Cluster)
	num("SLURM_JOB_ID", j.Id)
	num("SLURM_JOBID", j.Id)
	set("SLURM_JOB_NAME", spec.GetName())
	num("SLURM_JOB_UID", spec.GetUid())
	num("SLURM_JOB_GID", spec.GetGid())
	set("SLURM_JOB_USER", spec.GetUser())
	given("SLURM_JOB_GROUP", spec.GetGroup())
	given("SLURM_JOB_ACCOUNT", spec.GetAccount())
	given("SLURM_JOB_COMMENT", spec.GetComment())
	given("SLURM_JOB_CONSTRAINTS", spec.GetFeatures())
	given("SLURM_JOB_EXTRA", spec.GetExtra())
	given("SLURM_JOB_LICENSES", spec.GetLicenses())
	given("SLURM_JOB_QOS", spec.GetQos())
	given("SLURM_JOB_RESERVATION", spec.GetReservation())
	given("SLURM_WCKEY", spec.GetWckey())
	set("SLURM_JOB_PARTITION", j.Partition)
	set("SLURM_JOB_NODELIST", j.NodeList)
	num("SLURM_JOB_NUM_NODES", j.NumNodes)
	set("SLURM_JOB_CPUS_PER_NODE", cpusPerNode(j.Alloc))
	num("SLURM_JOB_RESTART_COUNT", j.Restarts)
	given("SLURM_JOB_WORK_DIR", spec.GetWorkDir())
	set("SLURM_JOB_STDIN", or(spec.GetStdIn(), "/dev/null"))
	given("SLURM_JOB_STDOUT", spec.GetStdOut())
	given("SLURM_JOB_STDERR", spec.GetStdErr())
	if j.IsArrayTask {
		l := &pb.LaunchSpec{}
		dispatch.ArrayFigures(l, j)
		num("SLURM_ARRAY_JOB_ID", j.ArrayJobId)
		num("SLURM_ARRAY_TASK_ID", j.ArrayTaskId)
		num("SLURM_ARRAY_TASK_COUNT", l.ArrayTaskCount)
		num("SLURM_ARRAY_TASK_MIN", l.ArrayTaskMin)
		num("SLURM_ARRAY_TASK_MAX", l.ArrayTaskMax)
		num("SLURM_ARRAY_TASK_STEP", l.ArrayTaskStep)
	}
	if epilog {
		num("SLURM_JOB_EXIT_CODE", j.ExitStatus)
		set("SLURM_JOB_EXIT_CODE2", fmt.Sprintf("%d:%d", j.ExitStatus>>8&0xff, j.ExitStatus&0x7f))
		num("SLURM_JOB_DERIVED_EC", j.DerivedStatus)
	}
	return env
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// cpusPerNode formats CPUs as Slurm does: "4(x2),1".
func cpusPerNode(alloc []*pb.NodeAlloc) string {
	var words []string
	for i := 0; i < len(alloc); {
		k := i
		for k < len(alloc) && alloc[k].Cpus == alloc[i].Cpus {
			k++
		}
		word := strconv.FormatUint(uint64(alloc[i].Cpus), 10)
		if k-i > 1 {
			word += fmt.Sprintf("(x%d)", k-i)
		}
		words = append(words, word)
		i = k
	}
	return strings.Join(words, ",")
}
