package acct

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestLostAttempts: reports of several nodes about a job that a restore has lost become one row. The report of the script's node wins, in
// any order of arrival. A row from before the restore is completed if it has no end, and stays if it has one.
func TestLostAttempts(t *testing.T) {
	told := func(node string, step uint32, verdict string, s pb.JobState) *pb.JobRecord {
		return &pb.JobRecord{Id: 7, Spec: &pb.JobSpec{Name: "told"}, State: s, StartNs: 5, EndNs: 9, NodeList: "n[1-2]", BatchHost: node,
			Lost: &pb.LostAttempt{Key: &pb.StepKey{JobId: 7, Attempt: 1, Epoch: 50, Step: step}, Nodes: []string{node}, Verdict: verdict}}
	}
	script := told("n1", pb.BatchStep, "exited", pb.JobState_JOB_FAILED)
	killed := told("n1", pb.BatchStep, "", pb.JobState_JOB_NODE_FAIL)
	held := told("n2", pb.ExternStep, "cancelled", pb.JobState_JOB_NODE_FAIL)
	have := func(s pb.JobState) *pb.JobRecord {
		return &pb.JobRecord{Id: 7, Spec: &pb.JobSpec{Name: "whole"}, State: s, StartNs: 4, EndNs: 8, NodeList: "n[1-2]", BatchHost: "n1"}
	}
	const failed, done, running = pb.JobState_JOB_FAILED, pb.JobState_JOB_COMPLETED, pb.JobState_JOB_RUNNING
	for name, c := range map[string]struct {
		have *pb.JobRecord
		told []*pb.JobRecord
		want pb.JobState
		name string
	}{
		"one node":            {nil, []*pb.JobRecord{script}, failed, "told"},
		"the script first":    {nil, []*pb.JobRecord{script, held}, failed, "told"},
		"the script last":     {nil, []*pb.JobRecord{held, script}, failed, "told"},
		"an end later":        {nil, []*pb.JobRecord{killed, script, killed}, failed, "told"},
		"it ran":              {have(running), []*pb.JobRecord{script}, failed, "whole"},
		"it ran, two nodes":   {have(running), []*pb.JobRecord{held, script}, failed, "whole"},
		"it waited":           {have(pb.JobState_JOB_PENDING), []*pb.JobRecord{script}, failed, "whole"},
		"it ended before":     {have(done), []*pb.JobRecord{script}, done, "whole"},
		"an older one is not": {nil, []*pb.JobRecord{script, older(held)}, failed, "told"},
	} {
		db, err := openStore(filepath.Join(t.TempDir(), File), "c")
		if err != nil {
			t.Fatal(err)
		}
		put := func(j *pb.JobRecord, lost bool) {
			r, err := rowOf(j)
			if lost {
				r.lost = j
			}
			if err == nil {
				_, err = db.put(context.Background(), []row{r}, 0)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c.have != nil {
			put(c.have, false)
		}
		for _, j := range c.told {
			put(j, true)
		}
		var b []byte
		var end int64
		if err := db.read.QueryRow("SELECT record, end FROM jobs").Scan(&b, &end); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		j, err := decoded(b)
		if err != nil || j.State != c.want || j.Spec.Name != c.name || j.EndNs != end || j.BatchHost != "n1" {
			t.Errorf("%s: %v, %v", name, j, err)
		}
		db.close()
	}
}

// older makes the report one of an earlier attempt.
func older(j *pb.JobRecord) *pb.JobRecord {
	n := state.CloneJob(j)
	n.Lost = &pb.LostAttempt{Key: &pb.StepKey{JobId: 7, Attempt: 1, Epoch: 40, Step: pb.BatchStep}, Nodes: j.Lost.Nodes, Verdict: "exited"}
	return n
}
