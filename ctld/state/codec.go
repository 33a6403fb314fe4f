package state

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Rows are the changed rows of a transaction, as the journal stores them.
func (tx *Tx) Rows() ([]journal.Row, error) {
	rows := make([]journal.Row, 0, len(tx.dirty)+len(tx.scripts)+len(tx.nodes)+1)
	for id, durable := range tx.dirty {
		if !durable {
			continue
		}
		row, err := encode(journal.Jobs, jobKey(id), tx.Job(id))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for id, blob := range tx.scripts {
		rows = append(rows, journal.Row{Bucket: journal.Scripts, Key: jobKey(id), Value: blob})
	}
	for name, durable := range tx.nodes {
		n := tx.Node(name)
		if !durable || n == nil {
			continue
		}
		row, err := encode(journal.Nodes, []byte(name), storedNode(n))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for name := range tx.parts {
		row, err := encode(journal.Partitions, []byte(name), tx.Partition(name))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	rows, err := tx.outboxRows(rows)
	if err != nil {
		return nil, err
	}
	for uid := range tx.crontabs {
		row, err := encode(journal.Crontabs, jobKey(uid), tx.Crontab(uid))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for name := range tx.resvs {
		row, err := encode(journal.Reservations, []byte(name), tx.Reservation(name))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func jobKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

func encode[M interface {
	comparable
	proto.Message
}](b journal.Bucket, key []byte, m M) (journal.Row, error) {
	var none M
	if m == none {
		return journal.Row{Bucket: b, Key: key}, nil
	}
	v, err := proto.Marshal(m)
	if err != nil {
		return journal.Row{}, fmt.Errorf("cannot encode a row of %v: %w: %w", b, err, journal.ErrBatch)
	}
	return journal.Row{Bucket: b, Key: key, Value: v}, nil
}

// storedNode is what of a node outlives a restart: what administrators set and which boot was seen. Its allocations follow
// from the jobs.
func storedNode(n *Node) *pb.NodeRecord {
	return &pb.NodeRecord{Name: n.Name, State: n.State, StateFlags: n.StateFlags, Reason: n.Reason, ReasonUid: n.ReasonUid,
		ReasonUser: n.ReasonUser, ReasonNs: n.ReasonNs, BootId: n.BootId, BootNs: n.BootNs, Version: n.Version, Os: n.Os, Arch: n.Arch,
		Comment: n.Comment, Extra: n.Extra, Reported: n.Reported, Weight: n.Weight, Strays: n.Strays}
}

// EncodeScript packs a batch script and its environment for the Scripts bucket. DecodeScript reads it.
func EncodeScript(script []byte, env []string) ([]byte, error) {
	return proto.Marshal(&pb.SubmitRequest{Script: script, Env: env})
}

// DecodeScript is the inverse of EncodeScript.
func DecodeScript(blob []byte) (script []byte, env []string, err error) {
	var r pb.SubmitRequest
	if err := proto.Unmarshal(blob, &r); err != nil {
		return nil, nil, fmt.Errorf("cannot decode a stored script: %w", err)
	}
	return r.Script, r.Env, nil
}

// Load builds the View from a configuration and the rows of a journal.
func Load(cfg *Config, store journal.Store, clusterID string, firstID uint32) (*View, error) {
	v := New(cfg, clusterID, firstID)
	tx := Begin(v, 0)
	seq, err := store.Load(tx.loadRow)
	if err != nil {
		return nil, err
	}
	tx.dirty = map[uint32]bool{}
	tx.crontabs = nil
	next, _ := tx.Freeze()
	next.Seq = seq
	return next, nil
}

func (tx *Tx) loadRow(b journal.Bucket, key, value []byte) error {
	switch b {
	case journal.Jobs:
		j := &pb.JobRecord{}
		if err := proto.Unmarshal(value, j); err != nil {
			return fmt.Errorf("cannot decode job %x: %w", key, err)
		}
		tx.loadJob(j)
	case journal.Crontabs:
		r := &pb.CrontabRecord{}
		if err := proto.Unmarshal(value, r); err != nil {
			return fmt.Errorf("cannot decode the crontab of uid %x: %w", key, err)
		}
		tx.putCrontab(r.Uid, r)
	case journal.Nodes:
		s := &pb.NodeRecord{}
		if err := proto.Unmarshal(value, s); err != nil {
			return fmt.Errorf("cannot decode node %q: %w", key, err)
		}
		tx.loadNode(s)
	case journal.Finished:
		if a, ok := AttemptOf(key); ok {
			tx.next.Outbox = append(tx.next.Outbox, a)
		}
	case journal.Reservations:
		r := &pb.ReservationRecord{}
		if err := proto.Unmarshal(value, r); err != nil {
			return fmt.Errorf("cannot decode reservation %q: %w", key, err)
		}
		tx.putResv(r.Name, r)
	case journal.Partitions:
		s := &pb.PartitionRecord{}
		if err := proto.Unmarshal(value, s); err != nil {
			return fmt.Errorf("cannot decode partition %q: %w", key, err)
		}
		tx.loadPartition(s)
	}
	return nil
}

func (tx *Tx) loadJob(j *pb.JobRecord) {
	if j.Spec != nil {
		tx.ShareLimits(j.Spec)
	}
	tx.putJob(j, false)
	tx.next.NextJobID = max(tx.next.NextJobID, j.Id+1)
	tx.rememberRequest(j.RequestId, j.Id)
	for _, a := range j.Alloc {
		if !a.Ended {
			tx.occupy(j, a)
		}
	}
}

// loadNode takes what was stored of a node. Whether it is up is for the node itself to say: until it does it is UNKNOWN, or
// DOWN if it was.
func (tx *Tx) loadNode(s *pb.NodeRecord) {
	n := tx.Node(s.Name)
	if n == nil {
		return
	}
	c := *n
	c.NodeRecord = CloneNode(n.NodeRecord)
	c.State, c.StateFlags, c.Reason, c.ReasonUid, c.ReasonUser, c.ReasonNs = s.State, s.StateFlags, s.Reason, s.ReasonUid, s.ReasonUser, s.ReasonNs
	c.BootId, c.BootNs, c.Version, c.Os, c.Arch, c.Comment, c.Extra, c.Reported = s.BootId, s.BootNs, s.Version, s.Os, s.Arch, s.Comment, s.Extra, s.Reported
	c.Strays = s.Strays
	c.Recount()
	tx.putNode(&c, false)
}
