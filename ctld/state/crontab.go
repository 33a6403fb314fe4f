package state

import (
	"cmp"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Crontabs returns the crontabs by uid. The slice must not be changed.
func (v *View) Crontabs() []*pb.CrontabRecord { return v.crontabs }

// Crontab returns a user's crontab, or nil.
func (v *View) Crontab(uid uint32) *pb.CrontabRecord {
	if i, ok := findCrontab(v.crontabs, uid); ok {
		return v.crontabs[i]
	}
	return nil
}

// Crontab reads the working state.
func (tx *Tx) Crontab(uid uint32) *pb.CrontabRecord { return tx.next.Crontab(uid) }

func findCrontab(list []*pb.CrontabRecord, uid uint32) (int, bool) {
	return slices.BinarySearchFunc(list, uid, func(r *pb.CrontabRecord, uid uint32) int { return cmp.Compare(r.Uid, uid) })
}

// CloneCrontab copies a crontab and the list of its entries.
func CloneCrontab(r *pb.CrontabRecord) *pb.CrontabRecord {
	return &pb.CrontabRecord{Uid: r.Uid, User: r.User, Text: r.Text, Entries: slices.Clone(r.Entries)}
}

// CrontabChanged: a user's crontab was written, or an entry of it was taken out. Without text and entries it is removed.
type CrontabChanged struct{ Crontab *pb.CrontabRecord }

func (e CrontabChanged) apply(tx *Tx) {
	r := e.Crontab
	if r.Text == "" && len(r.Entries) == 0 {
		r = nil
	}
	tx.putCrontab(e.Crontab.Uid, r)
}

// Attrs implements Event.
func (e CrontabChanged) Attrs() []any {
	return []any{"uid", e.Crontab.Uid, "entries", len(e.Crontab.Entries)}
}

// putCrontab stores a crontab, or removes it when r is nil. The list is small and copied.
func (tx *Tx) putCrontab(uid uint32, r *pb.CrontabRecord) {
	list := slices.Clone(tx.next.crontabs)
	i, found := findCrontab(list, uid)
	if found {
		tx.next.writer.bytes.add(uid, -CrontabBytes(list[i]))
	}
	if r != nil {
		tx.next.writer.bytes.add(uid, CrontabBytes(r))
	}
	switch {
	case r == nil && found:
		list = slices.Delete(list, i, i+1)
	case found:
		list[i] = r
	case r != nil:
		list = slices.Insert(list, i, r)
	}
	tx.next.crontabs = list
	if tx.crontabs == nil {
		tx.crontabs = map[uint32]bool{}
	}
	tx.crontabs[uid] = true
}
