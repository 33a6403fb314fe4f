package state

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Rows returns the changed rows of a transaction, as the journal stores them.
func (tx *Tx) Rows() ([]journal.Row, error) {
	put := tx.next.clockUnsaved.and(tx)
	rows := make([]journal.Row, 0, len(put.jobs)+len(tx.texts)+len(put.nodes)+1)
	stamp := tx.stamp()
	for id, durable := range put.jobs {
		if !durable {
			continue
		}
		row, err := tx.jobRow(id, stamp)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for key, stored := range tx.texts {
		rows = append(rows, journal.Row{Bucket: journal.Texts, Key: key[:], Value: stored})
	}
	for name, durable := range put.nodes {
		if !durable {
			continue
		}
		var stored *pb.NodeRecord // stays nil for a node that was removed
		if n := tx.Node(name); n != nil {
			stored = storedNode(n)
		}
		row, err := encode(journal.Nodes, []byte(name), stored)
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
	if rows, err = tx.rowsOfSteps(rows); err != nil {
		return nil, err
	}
	if rows, err = tx.clockRow(rows); err != nil {
		return nil, err
	}
	for uid := range tx.crontabs {
		row, err := encode(journal.Crontabs, jobKey(uid), tx.Crontab(uid))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if rows, err = tx.enrolRows(rows, put.tokens); err != nil {
		return nil, err
	}
	if rows, err = tx.policyRows(rows); err != nil {
		return nil, err
	}
	for name := range put.reservations {
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

// Load builds the View from a configuration and the rows of a journal.
func Load(cfg *Config, store journal.Store, clusterID string, firstID uint32) (*View, error) {
	v := New(cfg, clusterID, firstID)
	_, lost := store.Generation()
	for _, s := range lost {
		v.Lose(s.After, s.UpTo)
	}
	tx := Begin(v, 0)
	tx.uncounted = true
	seq, err := store.Load(tx.loadRow)
	if err != nil {
		return nil, err
	}
	if tx.loading != nil {
		tx.loading.noteTimed()
		tx.loading.noteHours(tx.NowNS, cfg.Settings.Location())
	}
	tx.recount()
	tx.recountTime()
	tx.occupyAll()
	tx.groupDynamic()
	tx.listPartitions()
	tx.stepped, tx.stepRows, tx.stepsKept = nil, nil, nil
	tx.dirty, tx.nodes = map[uint32]bool{}, map[string]bool{}
	tx.crontabs, tx.tokens, tx.hosts = nil, nil, nil
	tx.oweAll()
	tx.roster = true
	next, _ := tx.Freeze()
	next.Seq = seq
	return next, nil
}

func (tx *Tx) loadRow(b journal.Bucket, key, value []byte) error {
	switch b {
	case journal.Meta: // comes first
		if string(key) == string(clockKey) {
			if err := tx.loadClock(value); err != nil {
				return fmt.Errorf("cannot decode what is known of the clock: %w", err)
			}
		}
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
	case journal.Tokens:
		return tx.loadEnrol(key, value)
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
	case journal.Steps:
		return tx.loadStep(key, value)
	case journal.Reservations:
		r := &pb.ReservationRecord{}
		if err := proto.Unmarshal(value, r); err != nil {
			return fmt.Errorf("cannot decode reservation %q: %w", key, err)
		}
		tx.putResv(r.Name, r)
	case journal.Accounts:
		return tx.loadPolicy(key, value)
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
	j = tx.inTime(j)
	tx.putJob(j, false)
	if !Active(j) {
		tx.next.writer.ended[j.Id] = tx.next.Steady(j.EndNs)
	}
	tx.next.NextJobID = max(tx.next.NextJobID, j.Id+1)
	tx.rememberRequest(j.RequestId, j.Id)
}

// occupyAll counts the resources of the loaded jobs, once the nodes have been loaded too.
func (tx *Tx) occupyAll() {
	for j := range tx.next.Jobs.All() {
		for _, a := range j.Alloc {
			if !a.Ended {
				tx.occupy(j, a)
			}
		}
	}
}
