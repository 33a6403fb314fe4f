package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// maxEnds bounds the query to accounting for the dependencies of one request, in attempts: two for each condition of the longest.
const maxEnds = 2 * jobid.MaxDependencies

var errTooMany = errors.New("more attempts than maxEnds")

// ends asks accounting how forgotten jobs in dependencies ended. Jobs that it does not know, or cannot look up now, are left out.
func (s *Service) ends(ctx context.Context, v *state.View, dependencies ...string) reactor.Ends {
	ends, ids := reactor.Ends{}, []string(nil)
	for _, text := range dependencies {
		d, _ := jobid.ParseDependency(text)
		for _, c := range d.Conditions {
			asked := jobid.Condition{Job: c.Job, Task: c.Task, HasTask: c.HasTask}
			if _, again := ends[asked]; again || !reactor.OnEnd(c.Kind) || c.Job >= v.NextJobID || v.Jobs.Get(c.Job) != nil {
				continue
			}
			id := fmt.Sprint(c.Job)
			if c.HasTask {
				id = fmt.Sprintf("%d_%d", c.Job, c.Task)
			}
			ends[asked], ids = false, append(ids, id)
		}
	}
	if len(ids) == 0 || s.Acct == nil {
		return nil
	}
	leave, err := turns.Selection(ctx)
	if err != nil {
		return nil
	}
	defer leave()
	last, n := map[uint32]*pb.JobRecord{}, 0 // the last attempt of each job
	err = s.Acct.Select(ctx, &pb.AccountingRequest{Ids: ids}, s.Writer.View, func(record []byte) error {
		if n++; n > maxEnds {
			return errTooMany
		}
		j := &pb.JobRecord{}
		if err := proto.Unmarshal(record, j); err != nil {
			return err
		}
		last[j.Id] = &pb.JobRecord{State: j.State, StateFlags: j.StateFlags, ExitStatus: j.ExitStatus, ArrayJobId: j.ArrayJobId,
			ArrayTaskId: j.ArrayTaskId, IsArrayTask: j.IsArrayTask, ArrayTasks: j.ArrayTasks, Dropped: j.Dropped,
			Id: j.Id}
		return nil
	})
	if err != nil {
		return nil
	}
	return endsOf(ends, last)
}

// waitedFor returns the ends of jobs for which jobs to requeue were still waiting when they were cancelled.
func (s *Service) waitedFor(ctx context.Context, ids []string) reactor.Ends {
	v := s.Writer.View()
	var dependencies []string
	for _, id := range ids {
		named, err := jobid.Parse(id)
		if err != nil {
			continue
		}
		if j := v.Jobs.Get(named.Job); j != nil && !state.Active(j) && j.Dependency != "" {
			dependencies = append(dependencies, j.Dependency)
		}
	}
	return s.ends(ctx, v, dependencies...)
}

// endsOf tells for each requested job and task whether all its records ended well, and leaves out those without records.
func endsOf(asked reactor.Ends, last map[uint32]*pb.JobRecord) reactor.Ends {
	ends := reactor.Ends{}
	note := func(c jobid.Condition, good bool) {
		if _, wanted := asked[c]; wanted {
			well, again := ends[c]
			ends[c] = good && (well || !again)
		}
	}
	tasksOf := map[uint32][]jobid.Condition{} // by array
	for c := range asked {
		if c.HasTask {
			tasksOf[c.Job] = append(tasksOf[c.Job], c)
		}
	}
	for _, j := range last {
		good, all := state.Good(j), state.Good(j) && j.Dropped == ""
		note(jobid.Condition{Job: j.Id}, all)
		if j.ArrayJobId == 0 {
			continue
		}
		if j.ArrayJobId != j.Id {
			note(jobid.Condition{Job: j.ArrayJobId}, all)
		}
		if j.IsArrayTask {
			note(jobid.Condition{Job: j.ArrayJobId, Task: j.ArrayTaskId, HasTask: true}, good)
		}
		if j.ArrayTasks == "" {
			continue
		}
		tasks := state.ArraySet(j)
		for _, c := range tasksOf[j.ArrayJobId] {
			if tasks.Has(c.Task) {
				note(c, good)
			}
		}
	}
	return ends
}
