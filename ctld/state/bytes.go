package state

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// What a user holds in the state, in bytes: texts (text.go), records of jobs until they are forgotten, and the crontab. It is counted in
// the writer's index, so that the controller can refuse what would be too much.

// What a record of a job counts for beyond its specification, and what of the specification is not counted again for each further task of
// an array: its tasks get records of their own when they start, and then each repeats all of it.
const (
	recordBytes = 1 << 10
	taskBytes   = 4 << 10
)

// waitBytes is what a byte of a dependency counts for: squeue shows it with twice as many, and the writer's index has its conditions.
const waitBytes = 12

// userBytes are the bytes by user.
type userBytes map[uint32]int64

func (u userBytes) add(uid uint32, n int64) {
	if n == 0 {
		return
	}
	if u[uid] += n; u[uid] == 0 {
		delete(u, uid)
	}
}

// JobBytes is what a record counts for, apart from its texts.
func JobBytes(j *pb.JobRecord) int64 {
	spec := int64(proto.Size(j.Spec) + waitBytes*len(j.Dependency))
	n := recordBytes + spec + int64(proto.Size(j.FirstStep)+len(j.ArrayTasks)+len(j.ArraySpec)+len(j.Dropped))
	if j.ArrayTasks != "" && spec > taskBytes {
		n += (spec - taskBytes) * int64(max(ArraySet(j).Count()-1, 0))
	}
	return n
}

// sameBytes reports whether two records of a job count for the same, without counting: specifications are shared until they change.
func sameBytes(a, b *pb.JobRecord) bool {
	return a.Spec == b.Spec && a.FirstStep == b.FirstStep && a.ArrayTasks == b.ArrayTasks &&
		a.Dependency == b.Dependency && a.ArraySpec == b.ArraySpec && a.Dropped == b.Dropped
}

// countBytes follows a record from old to fresh; either may be nil.
func (tx *Tx) countBytes(old, fresh *pb.JobRecord) {
	w := tx.next.writer
	if old != nil && fresh != nil {
		if !sameBytes(old, fresh) {
			w.bytes.add(old.Spec.GetUid(), -JobBytes(old))
			w.bytes.add(fresh.Spec.GetUid(), JobBytes(fresh))
		}
		return
	}
	if fresh != nil {
		w.bytes.add(fresh.Spec.GetUid(), JobBytes(fresh))
		tx.countTexts(fresh, 1)
	}
	if old != nil {
		w.bytes.add(old.Spec.GetUid(), -JobBytes(old))
		tx.countTexts(old, -1)
	}
}

// UserBytes is what a user holds in the state. Only for the writer.
func (tx *Tx) UserBytes(uid uint32) int64 { return tx.next.writer.bytes[uid] }

// NewTextBytes is what texts of a job to be would add: nothing where its user has them already. Only for the writer.
func (tx *Tx) NewTextBytes(t Texts) (n int64) {
	for _, one := range [2]Text{t.Script, t.Env} {
		if one.stored != nil && tx.next.writer.texts[one.Key] == 0 {
			n += one.Key.size()
		}
	}
	return n
}

// CrontabBytes is what a crontab counts for, apart from its jobs; r may be nil.
func CrontabBytes(r *pb.CrontabRecord) int64 { return int64(proto.Size(r)) }
