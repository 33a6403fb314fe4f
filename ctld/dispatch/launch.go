package dispatch

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// launch returns everything that a node needs to run its part of a job. Only the batch host gets script and environment.
func (d *Dispatcher) launch(j *pb.JobRecord, node string) (*pb.LaunchSpec, error) {
	s := d.allocation(j, node)
	if !s.Batch {
		return s, nil
	}
	var err error
	if s.Script, s.Env, err = d.scripts(j); err != nil {
		return nil, fmt.Errorf("cannot read the script of job %d: %w", j.Id, err)
	}
	return s, nil
}

// allocation returns what a node needs to know of a job and its own part.
func (d *Dispatcher) allocation(j *pb.JobRecord, node string) *pb.LaunchSpec {
	s := &pb.LaunchSpec{
		Key: stepOf(j, node).key(), Spec: j.Spec, Alloc: left(j), NodeList: j.NodeList, Node: node,
		Batch:     state.HolderOn(j, node) == pb.BatchStep,
		Partition: j.Partition, Account: j.Spec.Account, Qos: j.Spec.Qos, NumTasks: j.NumTasks,
		StartNs: j.StartNs, EndNs: j.EndNs, LimitS: limitOf(j), Restarts: restarts(j), Dependency: j.Spec.Dependency,
		ArrayJobId: j.ArrayJobId, ArrayTaskId: j.ArrayTaskId, IsArrayTask: j.IsArrayTask, OverTimeS: d.view().OverTime(j.Partition),
	}
	if j.ResvName != "" { // may be one that it did not request, for SLURM_JOB_RESERVATION
		s.Spec = state.CloneSpec(j.Spec)
		s.Spec.Reservation = j.ResvName
	}
	for i, a := range s.Alloc {
		if a.Node == node {
			s.NodeIndex = uint32(i)
		}
	}
	if j.IsArrayTask && s.Batch {
		ArrayFigures(s, j)
	}
	return s
}

// left returns the shares that a job still has, without those of failed nodes (--no-kill).
func left(j *pb.JobRecord) []*pb.NodeAlloc {
	ended := (*pb.NodeAlloc).GetEnded
	if !slices.ContainsFunc(j.Alloc, ended) {
		return j.Alloc
	}
	return slices.DeleteFunc(slices.Clone(j.Alloc), ended)
}

// limitOf returns a job's time limit as nodes measure it, in seconds, 0 if it has none. A limit below a second, which TimeLimit=0 and
// EndTime can set, is sent as one second: to nodes, 0 means no limit.
func limitOf(j *pb.JobRecord) uint32 {
	if j.EndNs == 0 || j.TimeLimitS == pb.Unlimited {
		return 0
	}
	return max(1, j.TimeLimitS)
}

// ArrayFigures sets SLURM_ARRAY_TASK_COUNT, _MIN, _MAX and _STEP: those of the array as submitted.
func ArrayFigures(s *pb.LaunchSpec, j *pb.JobRecord) {
	a, err := jobid.ParseArray(j.Spec.Array)
	if err != nil {
		return // cannot fail: admitted by this program
	}
	s.ArrayTaskStep = a.Ranges[0].Step
	set := state.ArraySet(&pb.JobRecord{ArrayTasks: j.ArraySpec})
	s.ArrayTaskCount = uint32(set.Count())
	s.ArrayTaskMin, _ = set.Min()
	s.ArrayTaskMax, _ = set.Max()
}

// restarts returns SLURM_RESTART_COUNT: the runs of a crontab job are no restarts, each is a first one.
func restarts(j *pb.JobRecord) uint32 {
	if j.Spec.GetCron() != "" {
		return 0
	}
	return j.Restarts
}
