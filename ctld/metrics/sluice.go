package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// own writes the metrics that neither Slurm nor the exporter has.
func (s *Source) own(p *metrics.Page, t *tally, names bool) {
	v, now := t.view, float64(s.Now().UnixNano())/1e9
	p.Gauge("sluice_build_info", "1, with the version of the controller.", "version").Add(1, s.Version)
	p.Counter("sluice_commits_seq_total", "Number of the last commit of the state.").Add(float64(v.Seq))
	s.queue(p, t, now)
	s.links(p, t)
	s.gpus(p, t)
	s.idleUsers(p, names)
	s.upkeep(p)
}

// maxReasons bounds the reasons of waiting jobs.
const maxReasons = 60

func (s *Source) queue(p *metrics.Page, t *tally, now float64) {
	p.Gauge("sluice_jobs_pending_by_reason", "Pending jobs, by the reason that squeue shows.", "reason")
	words := slices.SortedFunc(maps.Keys(t.reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.reasons[b], t.reasons[a]), cmp.Compare(a, b))
	})
	rest := 0.0
	for i, w := range words {
		if i >= maxReasons || w == other {
			rest += t.reasons[w]
			continue
		}
		p.Add(t.reasons[w], w)
	}
	p.Add(rest, other)
	oldest := 0.0
	if t.oldestNS != 0 {
		oldest = max(0, now-float64(t.oldestNS)/1e9)
	}
	p.Gauge("sluice_queue_oldest_seconds",
		"Longest current wait of a job for resources (reasons Resources and Priority); 0: no job waits.").Add(oldest)
}

// links writes metrics of the streams to the nodes.
func (s *Source) links(p *metrics.Page, t *tally) {
	p.Gauge("sluice_nodes_linked", "Nodes that are connected to the controller.").Add(t.allNodes.linked)
	lag := 0.0
	p.Gauge("sluice_node_lag_seconds", "Time since the node was last heard of; -1: never since the controller started.", "node")
	for i := range t.nodes {
		n, ago := &t.nodes[i], -1.0
		if n.LastSeenNs != 0 {
			ago = max(0, float64(s.Now().UnixNano()-n.LastSeenNs)/1e9)
		}
		if n.LinkUp {
			lag = max(lag, ago)
		}
		p.Add(ago, n.Name)
	}
	p.Gauge("sluice_sync_lag_seconds", "Longest time since a connected node was last heard of.").Add(lag)
	p.Gauge("sluice_node_up", "1: jobs can start on the node.", "node")
	for i := range t.nodes {
		p.Add(truth(t.nodes[i].Up()), t.nodes[i].Name)
	}
	p.Gauge("sluice_node_down", "1: the node is DOWN, but not because it was powered down.", "node")
	for i := range t.nodes {
		n := &t.nodes[i]
		const asleep = pb.NodePoweredDown | pb.NodePoweringDown | pb.NodePoweringUp
		p.Add(truth(n.State == pb.NodeState_NODE_DOWN && n.StateFlags&asleep == 0), n.Name)
	}
	p.Gauge("sluice_node_drained", "1: the node accepts no new jobs (DRAIN).", "node")
	for i := range t.nodes {
		p.Add(truth(t.nodes[i].StateFlags&pb.NodeDrain != 0), t.nodes[i].Name)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maxBlock is the largest block of GPUs that is counted.
const maxBlock = 16

// gpus writes metrics of the cluster's GPUs, and of the fragments of the free ones.
func (s *Source) gpus(p *metrics.Page, t *tally) {
	n := &t.allNodes
	p.Gauge("sluice_gpus",
		"GPUs by state: used by a job, free for a job, faulty, or on a node where no job can start.", "state")
	p.Add(n.gpusHeld, "alloc").Add(n.gpusFree, "free").Add(n.gpusFaulty, "faulty").
		Add(max(0, n.gpus-n.gpusHeld-n.gpusFree-n.gpusFaulty), "unavailable")
	blocks := map[int]float64{}
	whole := 0.0
	for i := range t.nodes {
		free := t.nodes[i].gpusFree
		if free == t.nodes[i].gpus {
			whole += float64(free)
		}
		for size := 1; size <= maxBlock; size *= 2 {
			blocks[size] += float64(free / size)
		}
	}
	p.Gauge("sluice_gpu_free_blocks", "Number of jobs with this many GPUs on one node that could start now, judged only by GPUs.", "size")
	for size := 1; size <= maxBlock; size *= 2 {
		p.Add(blocks[size], strconv.Itoa(size))
	}
	fragmented := 0.0
	if n.gpusFree > 0 {
		fragmented = 1 - whole/n.gpusFree
	}
	p.Gauge("sluice_gpu_fragmentation_ratio",
		"Share of the free GPUs that are on nodes where others are in use or faulty: 0 none, 1 all.").Add(fragmented)
	p.Gauge("sluice_node_gpus_faulty", "GPUs of the node that are not allocated: faulty, or used by a process outside any job.", "node")
	for i := range t.nodes {
		if t.nodes[i].gpus > 0 {
			p.Add(float64(t.nodes[i].gpusFaulty), t.nodes[i].Name)
		}
	}
}

func (s *Source) idleUsers(p *metrics.Page, names bool) {
	g := &s.Watch().idle
	g.mu.Lock()
	defer g.mu.Unlock()
	idle := 0.0
	for _, n := range g.now {
		idle += n
	}
	p.Gauge("sluice_gpus_held_idle", "GPUs allocated to jobs that have been idle for a minute.").Add(idle)
	p.Gauge("sluice_gpus_held_sampled", "GPUs allocated to jobs whose utilization the controller knows.").Add(g.held)
	if !names {
		return
	}
	users := slices.Sorted(maps.Keys(g.seconds))
	p.Gauge("sluice_user_gpus_idle", "GPUs allocated to the user's jobs that have been idle for a minute.", "user")
	for _, u := range users {
		p.Add(g.now[u], u)
	}
	p.Counter("sluice_user_gpu_idle_seconds_total", "Idle time of GPUs allocated to the user's jobs, summed over GPUs.", "user")
	for _, u := range users {
		p.Add(g.seconds[u], u)
	}
}

// upkeep writes metrics of things that an administrator has to maintain.
func (s *Source) upkeep(p *metrics.Page) {
	if own, all, err := s.Certificates(); err == nil {
		p.Gauge("sluice_certificate_expiry_timestamp_seconds", "Time when the certificate expires, in seconds since 1970.", "certificate")
		p.Add(float64(own.NotAfter.Unix()), "controller")
		for i, a := range all {
			p.Add(float64(a.NotAfter.Unix()), "authority"+map[bool]string{true: "-" + strconv.Itoa(i+1)}[i > 0])
		}
	}
	at := 0.0
	if b := s.Backup(); !b.IsZero() {
		at = float64(b.Unix())
	}
	p.Gauge("sluice_backup_timestamp_seconds",
		"Time when the newest backup was last known to be complete, in seconds since 1970; 0: there is none.").Add(at)
	waiting, written, err := s.Accounting()
	p.Gauge("sluice_accounting_waiting", "Jobs that are still to be written to the accounting database.").Add(float64(waiting))
	p.Counter("sluice_accounting_written_total", "Jobs that were written to the accounting database.").Add(float64(written))
	p.Gauge("sluice_accounting_up", "0: the last attempt to write to the accounting database failed.").Add(truth(err == nil))
}
