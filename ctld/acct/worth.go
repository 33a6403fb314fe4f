package acct

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// WorthQuery selects jobs for a report on their efficiency, from Since until Until, in nanoseconds.
type WorthQuery struct {
	Since, Until int64
	By           string            // "user", "account", "partition", "node"
	UIDs         []uint32          // of these users; empty: of all
	Sees         func(uint32) bool // users whose jobs the caller may see
	Accounts     []string          // of these; empty: of all
	Partitions   []string          // in these; empty: in all
	Live         func(*pb.JobRecord) []*pb.StepUsage
}

// worthKey identifies one row of a report.
type worthKey struct {
	account   string
	uid       uint32
	partition string
	node      string
}

// worth sums up attempts.
type worth struct {
	*pb.ReportRow
	lastJob uint32
	waits   []float64 // seconds, of attempts that started in the window or still wait
}

// worths are the rows of a report under construction.
type worths struct {
	q    *WorthQuery
	v    *state.View
	now  int64
	rows map[worthKey]*worth
}

// Worth returns the efficiency of jobs, in rows by the query's By. Use is known for a whole attempt: for one that extends beyond the
// window, the fraction of its time within the window counts.
func (a *Accounting) Worth(ctx context.Context, q *WorthQuery, view func() *state.View) ([]*pb.ReportRow, error) {
	w := &worths{q: q, v: view(), now: a.o.Now().UnixNano(), rows: map[worthKey]*worth{}}
	err := a.Select(ctx, &pb.AccountingRequest{SinceNs: q.Since, UntilNs: q.Until, Uids: q.UIDs, Duplicates: true}, view,
		func(record []byte) error {
			j, err := decoded(record)
			if err == nil && q.wants(j.Spec.Uid, j.Spec.Account, j.Partition) {
				w.count(j)
			}
			return err
		})
	return w.sorted(), err
}

// Lose adds losses to fragmentation to rows by user, account or partition.
func (q *WorthQuery) Lose(rows []*pb.ReportRow, losses []gpuhours.LostHour) []*pb.ReportRow {
	for _, l := range losses {
		if q.By == "node" || !q.wants(l.UID, l.Account, l.Partition) {
			continue
		}
		k := q.key(l.UID, l.Account, l.Partition)
		i := slices.IndexFunc(rows, func(r *pb.ReportRow) bool {
			return worthKey{r.Account, r.Uid, r.Partition, r.Node} == k
		})
		if i < 0 {
			rows = append(rows, &pb.ReportRow{Account: k.account, Uid: k.uid, Partition: k.partition})
			i = len(rows) - 1
		}
		rows[i].GpuLostS += l.GPUs
		rows[i].GpuLostBesideS += l.Beside
	}
	slices.SortFunc(rows, order)
	return rows
}

func order(a, b *pb.ReportRow) int {
	return cmp.Or(cmp.Compare(b.GpuS, a.GpuS), cmp.Compare(b.CpuS, a.CpuS), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Uid, b.Uid),
		cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Node, b.Node))
}

// wants reports whether the query covers the jobs of a user under an account in a partition; pending ones may name several.
func (q *WorthQuery) wants(uid uint32, account, partition string) bool {
	if len(q.UIDs) > 0 && !slices.Contains(q.UIDs, uid) || !q.Sees(uid) {
		return false
	}
	account = cmp.Or(account, admit.DefaultAccount)
	if len(q.Accounts) > 0 && !slices.ContainsFunc(q.Accounts, func(a string) bool { return strings.EqualFold(a, account) }) {
		return false
	}
	return len(q.Partitions) == 0 || slices.Contains(q.Partitions, partition)
}

func (q *WorthQuery) key(uid uint32, account, partition string) (k worthKey) {
	switch q.By {
	case "account":
		k.account = cmp.Or(account, admit.DefaultAccount)
	case "partition":
		k.partition = partition
	default:
		k.account, k.uid = cmp.Or(account, admit.DefaultAccount), uid
	}
	return k
}

func (w *worths) of(j *pb.JobRecord, node string) *worth {
	k := w.q.key(j.Spec.Uid, j.Spec.Account, j.Partition)
	if w.q.By == "node" {
		k = worthKey{node: node}
	}
	x := w.rows[k]
	if x == nil {
		x = &worth{ReportRow: &pb.ReportRow{Account: k.account, Uid: k.uid, Partition: k.partition, Node: k.node}}
		w.rows[k] = x
	}
	if x.lastJob != j.Id { // the attempts of a job are adjacent
		x.lastJob = j.Id
		x.Jobs += uint64(gpuhours.Tasks(j))
	}
	return x
}

// count adds an attempt.
func (w *worths) count(j *pb.JobRecord) {
	from, to, _ := span(j, w.now)
	if cut := min(to, w.q.Until) - max(from, w.q.Since); cut > 0 {
		share := awake(j, from, to)
		w.held(j, seconds(cut)*share, float64(cut)/float64(to-from))
	}
	if w.q.By != "node" {
		w.waited(j, from)
	}
}

// held adds an attempt's allocation for some seconds, and a fraction of its use.
func (w *worths) held(j *pb.JobRecord, seconds, part float64) {
	usage := j.Usage
	if live := w.q.Live(j); len(live) > 0 {
		usage = live
	}
	for _, a := range j.Alloc {
		x := w.of(j, a.Node)
		cpus, mem := float64(a.Cpus)*seconds, float64(a.MemMib)*seconds
		x.CpuS += cpus
		if len(usage) > 0 { // without reports it was only held
			x.CpuKnownS += cpus
			x.MemKnownS += mem
		}
		devices := map[string]*pb.DeviceUse{}
		for _, u := range usage {
			if u.Node != a.Node {
				continue
			}
			x.CpuUsedS += float64(u.CpuUsecUser+u.CpuUsecSystem) / 1e6 * part
			if a.MemMib > 0 {
				x.MemUsedS += float64(u.MaxRssKib) / 1024 * seconds
			}
			for _, d := range u.Devices {
				devices[d.Id] = d
			}
		}
		var inv *state.Inventory
		if n := w.v.Node(a.Node); n != nil {
			inv = n.Inv
		}
		for _, d := range a.Devices {
			size := gpuhours.Part(inv, d)
			if size == 0 {
				continue
			}
			use := devices[d.Id]
			if use == nil && d.Parent != "" {
				use = devices[inv.Instance(d)]
			}
			x.device(size, seconds, part, use, d.Share > 0)
		}
	}
}

// device adds a GPU, or the part of one that was held; shared: its use is known only for the whole GPU.
func (x *worth) device(size, seconds, part float64, use *pb.DeviceUse, shared bool) {
	x.GpuS += size * seconds
	if use.GetSamples() > 0 && use.UtilPercent >= 0 {
		busy := float64(min(use.UtilPercent, 100)) / 100
		x.GpuUsedS += size * seconds * busy
		x.GpuIdleS += size * seconds * (1 - busy)
	}
	if use.GetSamples() > 1 && use.EnergyMj >= 0 {
		joules := float64(use.EnergyMj) / 1000 * part
		if shared {
			joules *= size
		}
		x.EnergyJ += joules
		x.EnergyGpuS += size * seconds
	}
}

// waited adds the time that an attempt has waited in the window, times its requested GPUs, and, if it started in the window, the time since
// it could have started; for one that still waits, its wait so far.
func (w *worths) waited(j *pb.JobRecord, from int64) {
	if j.EligibleNs == 0 {
		return
	}
	until := from
	if until == 0 {
		if until = endOf(j); until == running {
			until = w.now
		}
	}
	last := min(until, w.q.Until)
	if cut := last - max(j.EligibleNs, w.q.Since); cut > 0 {
		x, tasks := w.of(j, ""), gpuhours.Tasks(j)
		x.GpuWaitedS += seconds(cut) * float64(gpuhours.GPUs(j.ReqTres)*tasks)
		if from == 0 && endOf(j) == running {
			x.waits = append(x.waits, slices.Repeat([]float64{seconds(last - j.EligibleNs)}, int(tasks))...)
		}
	}
	if from >= w.q.Since && from < w.q.Until && from != 0 {
		x := w.of(j, "")
		x.Started++
		x.waits = append(x.waits, max(0, seconds(from-j.EligibleNs)))
	}
}

// sorted returns the rows, those with the most GPU time first.
func (w *worths) sorted() []*pb.ReportRow {
	list := make([]*pb.ReportRow, 0, len(w.rows))
	for _, x := range w.rows {
		slices.Sort(x.waits)
		x.WaitMedianS, x.WaitP90S = quantile(x.waits, 0.5), quantile(x.waits, 0.9)
		list = append(list, x.ReportRow)
	}
	slices.SortFunc(list, order)
	return list
}

// quantile returns the smallest of sorted values that at least that fraction of them do not exceed; 0 for none.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(part*float64(len(sorted))))-1, 0)]
}
