package acct

import (
	"fmt"
	"math"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// running is the end time of a job that has not ended, so that "ended after" is one comparison.
const running = math.MaxInt64

// attemptBits of a key number the attempt: a job of a crontab has one every minute. maxRestarts is the last attempt with a key of its own.
const (
	attemptBits = 24
	maxRestarts = 1<<attemptBits - 1
)

// arrays is the part of a key that sorts the array's first record, which its last task has, behind the other tasks of the array: sacct then
// shows them in order of their index, as Slurm does.
const arrays = int64(1) << 60

// key orders the attempts of jobs, and those of the tasks of one array: by job, the first attempt first.
func key(j *pb.JobRecord) int64 {
	k := int64(j.Id)<<attemptBits | int64(min(j.Restarts, maxRestarts))
	if j.ArrayJobId == j.Id {
		k |= arrays
	}
	return k
}

// attempt converts a key to an Attempt.
func attempt(key int64) state.Attempt {
	return state.Attempt{Job: uint32(key >> attemptBits), Restarts: uint32(key & maxRestarts)}
}

func attemptOf(j *pb.JobRecord) state.Attempt { return state.Attempt{Job: j.Id, Restarts: j.Restarts} }

// ended reports whether an attempt has its final record.
func ended(j *pb.JobRecord) bool { return j.State.Terminal() || j.StateFlags&pb.JobRequeued != 0 }

// endOf returns when the attempt ended, or running.
func endOf(j *pb.JobRecord) int64 {
	if !ended(j) || j.EndNs == 0 {
		return running
	}
	return j.EndNs
}

// slim returns a record as it is stored and sent to sacct: without the fields that only the controller needs.
func slim(j *pb.JobRecord) *pb.JobRecord {
	n := state.CloneJob(j)
	n.ScriptKey, n.EnvKey, n.MadeSeq, n.FirstStep = nil, nil, 0, nil
	if !ended(j) {
		n.Lost = nil
	}
	n.RequestId, n.Signals, n.Epoch, n.StopReason, n.DependencyShown = "", nil, 0, "", ""
	s := state.CloneSpec(j.GetSpec())
	s.Groups, s.Rlimits, s.ExportEnv = nil, nil, ""
	n.Spec = s
	if len(j.Alloc) > 0 {
		n.Alloc = make([]*pb.NodeAlloc, len(j.Alloc))
		for i, a := range j.Alloc {
			n.Alloc[i] = &pb.NodeAlloc{Node: a.Node, Cpus: a.Cpus, MemMib: a.MemMib, Gres: a.Gres, Devices: a.Devices}
		}
	}
	return n
}

// encoded returns the stored form of a record.
func encoded(j *pb.JobRecord) ([]byte, error) {
	b, err := proto.Marshal(slim(j))
	if err != nil {
		return nil, fmt.Errorf("cannot encode job %d for accounting: %w", j.Id, err)
	}
	return b, nil
}

func decoded(b []byte) (*pb.JobRecord, error) {
	j := &pb.JobRecord{}
	if err := proto.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("cannot decode a job of the accounting database: %w", err)
	}
	if j.Spec == nil {
		j.Spec = &pb.JobSpec{}
	}
	return j, nil
}

// rowOf returns the row of a record.
func rowOf(j *pb.JobRecord) (row, error) {
	b, err := encoded(j)
	return row{key: key(j), array: j.ArrayJobId, uid: j.Spec.Uid, submit: j.SubmitNs, elig: j.EligibleNs, start: j.StartNs, end: endOf(j),
		state: int32(j.State), name: j.Spec.Name, record: b}, err
}
