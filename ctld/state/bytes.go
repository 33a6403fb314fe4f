package state

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// The bytes that a user holds in the state: texts (text.go), records of jobs until they are forgotten, and the crontab. They are counted in
// the writer's index, so that the controller can refuse too much.

// recordBytes is the size of a job's record beyond its specification. taskBytes of the specification are counted once for an array; the
// rest is counted again for each further task, because tasks get records of their own when they start, and each repeats the whole
// specification.
const (
	recordBytes = 1 << 10
	taskBytes   = 4 << 10
)

// waitBytes is the number of bytes counted for each byte of a dependency: squeue shows it with twice as many, and the writer's index holds
// its conditions.
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

// JobBytes returns the size of a record, apart from its texts.
func JobBytes(j *pb.JobRecord) int64 {
	spec := int64(proto.Size(j.Spec) + waitBytes*len(j.Dependency))
	n := recordBytes + spec + int64(proto.Size(j.FirstStep)+len(j.ArrayTasks)+len(j.ArraySpec)+len(j.Dropped))
	if j.ArrayTasks != "" && spec > taskBytes {
		n += (spec - taskBytes) * int64(max(ArraySet(j).Count()-1, 0))
	}
	return n
}

// sameBytes reports whether two records of a job have the same size, without counting: specifications are shared until they change.
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

// UserBytes returns the bytes that a user holds in the state. Only for the writer.
func (tx *Tx) UserBytes(uid uint32) int64 { return tx.next.writer.bytes[uid] }

// NewTextBytes returns the bytes that the texts of a new job would add: nothing where its user already has them. Only for the writer.
func (tx *Tx) NewTextBytes(t Texts) (n int64) {
	for _, one := range [2]Text{t.Script, t.Env} {
		if one.stored != nil && tx.next.writer.texts[one.Key] == 0 {
			n += one.Key.size()
		}
	}
	return n
}

// CrontabBytes returns the size of a crontab, apart from its jobs; r may be nil.
func CrontabBytes(r *pb.CrontabRecord) int64 { return int64(proto.Size(r)) }
