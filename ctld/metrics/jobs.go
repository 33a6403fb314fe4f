package metrics

import (
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// jobRow is a family of Slurm's metrics about jobs.
type jobRow struct {
	name, help string
	value      func(*jobs) float64
}

func stateRow(name string, s pb.JobState, help string) jobRow {
	return jobRow{name, help, func(c *jobs) float64 { return c.state[s] }}
}

func flaggedRow(name string, flag uint32, help string) jobRow {
	return jobRow{name, help, func(c *jobs) float64 { return c.flagged[flag] }}
}

// jobRows are slurm_jobs_*, slurm_partition_jobs_*, slurm_user_jobs_* and slurm_account_jobs_* of Slurm 25.11.
var jobRows = []jobRow{
	stateRow("bootfail", pb.JobState_JOB_BOOT_FAIL, "Jobs that ended because a node did not boot."),
	stateRow("cancelled", pb.JobState_JOB_CANCELLED, "Jobs that were cancelled."),
	stateRow("completed", pb.JobState_JOB_COMPLETED, "Jobs that ended with exit code 0."),
	flaggedRow("completing", pb.JobCompleting, "Jobs that are ending."),
	flaggedRow("configuring", pb.JobConfiguring, "Jobs whose nodes are being prepared."),
	{"cpus_alloc", "CPUs allocated to jobs.", func(c *jobs) float64 { return c.cpus }},
	stateRow("deadline", pb.JobState_JOB_DEADLINE, "Jobs that ended at their deadline."),
	{"expediting", "Always 0: no job is expedited.", func(*jobs) float64 { return 0 }},
	stateRow("failed", pb.JobState_JOB_FAILED, "Jobs that ended with a nonzero exit code."),
	{"fed_requeued", "Always 0: there are no federations.", func(*jobs) float64 { return 0 }},
	{"finished", "Ended jobs that are still shown (MinJobAge).", func(c *jobs) float64 { return c.finished }},
	{"gpus_alloc", "GPUs and MIG instances allocated to jobs.", func(c *jobs) float64 { return c.gpus }},
	{"hold", "Pending jobs that are held.", func(c *jobs) float64 { return c.held }},
	{"memory_alloc", "Memory allocated to jobs, in bytes.", func(c *jobs) float64 { return c.memMiB * mib }},
	stateRow("node_failed", pb.JobState_JOB_NODE_FAIL, "Jobs that ended because a node failed."),
	{"nodes_alloc", "Nodes allocated to jobs; a shared node counts once for each job.", func(c *jobs) float64 { return c.nodes }},
	stateRow("outofmemory", pb.JobState_JOB_OUT_OF_MEMORY, "Jobs that ended because they ran out of memory."),
	stateRow("pending", pb.JobState_JOB_PENDING, "Pending jobs, including held ones."),
	flaggedRow("powerup_node", pb.JobPowerUp, "Jobs whose nodes are being powered up."),
	stateRow("preempted", pb.JobState_JOB_PREEMPTED, "Jobs that were preempted."),
	flaggedRow("requeued", pb.JobRequeued, "Jobs that are being requeued."),
	flaggedRow("resizing", pb.JobResizing, "Jobs that are being resized."),
	flaggedRow("revoked", pb.JobRevoked, "Jobs that were revoked."),
	stateRow("running", pb.JobState_JOB_RUNNING, "Running jobs."),
	flaggedRow("signaling", pb.JobSignaling, "Jobs that are being sent a signal."),
	flaggedRow("stageout", pb.JobStageOut, "Jobs whose files are being staged out."),
	{"started", "Jobs still shown that have started at least once.", func(c *jobs) float64 { return c.started }},
	stateRow("suspended", pb.JobState_JOB_SUSPENDED, "Jobs that are suspended."),
	stateRow("timeout", pb.JobState_JOB_TIMEOUT, "Jobs that ended at their time limit."),
}

// jobsPage is /metrics/jobs.
func (s *Source) jobsPage(p *metrics.Page, t *tally) {
	p.Gauge("slurm_jobs", "Jobs that are shown: pending, running, and ended ones for MinJobAge.").Add(t.jobs.all)
	for _, r := range jobRows {
		p.Gauge("slurm_jobs_"+r.name, r.help).Add(r.value(&t.jobs))
	}
}

// peoplePage is /metrics/jobs-users-accts.
func (s *Source) peoplePage(p *metrics.Page, t *tally) {
	for _, k := range []struct {
		prefix, label string
		list          []named
	}{
		{"slurm_user_jobs", "username", topmost(t.users, s.Top())},
		{"slurm_account_jobs", "account", topmost(t.accounts, s.Top())},
	} {
		p.Gauge(k.prefix, "Jobs that are shown.", k.label)
		for _, who := range k.list {
			p.Add(who.all, who.name)
		}
		for _, r := range jobRows {
			p.Gauge(k.prefix+"_"+r.name, r.help, k.label)
			for _, who := range k.list {
				p.Add(r.value(who.jobs), who.name)
			}
		}
	}
}

// partitionsPage is /metrics/partitions.
func (s *Source) partitionsPage(p *metrics.Page, t *tally) {
	parts := t.view.Partitions()
	p.Gauge("slurm_partitions", "Partitions of the cluster.").Add(float64(len(parts)))
	family := func(name, help string, value func(j *jobs, n *nodes) float64) {
		p.Gauge("slurm_partition_"+name, help, "partition")
		for _, part := range parts {
			p.Add(value(t.partitions[part.Name], t.partNodes[part.Name]), part.Name)
		}
	}
	family("jobs", "Jobs that are shown.", func(j *jobs, _ *nodes) float64 { return j.all })
	for _, r := range jobRows {
		family("jobs_"+r.name, r.help, func(j *jobs, _ *nodes) float64 { return r.value(j) })
	}
	family("jobs_max_job_nodes", "Largest number of nodes that a pending job can use.",
		func(j *jobs, _ *nodes) float64 { return float64(j.maxNodes) })
	family("jobs_max_job_nodes_nohold", "Largest number of nodes that a pending job that is not held can use.",
		func(j *jobs, _ *nodes) float64 { return float64(j.maxNodesFree) })
	family("jobs_min_job_nodes", "Largest number of nodes that a pending job needs.",
		func(j *jobs, _ *nodes) float64 { return float64(j.minNodes) })
	family("jobs_min_job_nodes_nohold", "Largest number of nodes that a pending job that is not held needs.",
		func(j *jobs, _ *nodes) float64 { return float64(j.minNodesFree) })
	family("jobs_wait_part_node_limit", "Jobs that are pending because the partition has too few nodes.",
		func(j *jobs, _ *nodes) float64 { return j.partLimit })
	for _, r := range nodeRows {
		name := r.part
		if name == "" {
			name = r.name
		}
		family("nodes_"+name, r.help, func(_ *jobs, n *nodes) float64 { return r.value(n) })
	}
	for _, r := range []struct {
		name, help string
		value      func(*nodes) float64
	}{
		{"cpus", "CPUs of its nodes.", func(n *nodes) float64 { return n.cpusAll }},
		{"gpus", "GPUs of its nodes.", func(n *nodes) float64 { return n.gpus }},
		{"nodes", "Nodes of the partition.", func(n *nodes) float64 { return n.all }},
		{"nodes_cpus_alloc", "CPUs of its nodes allocated to jobs.", func(n *nodes) float64 { return n.cpusAlloc }},
		{"nodes_cpus_efctv", "CPUs of its nodes that can be allocated to jobs.", func(n *nodes) float64 { return n.cpus }},
		{"nodes_cpus_idle", "CPUs of its nodes available to a job now.", func(n *nodes) float64 { return n.idle }},
		{"nodes_mem_alloc", "Memory of its nodes allocated to jobs, in bytes.", func(n *nodes) float64 { return n.memAlloc * mib }},
		{"nodes_mem_avail", "Memory of its nodes not allocated to jobs, in bytes.",
			func(n *nodes) float64 { return max(0, n.memMiB-n.memAlloc) * mib }},
		{"nodes_mem_free", "Memory of its nodes not used by any process, in bytes.", func(n *nodes) float64 { return n.memFree * mib }},
		{"nodes_mem_tot", "Memory of its nodes, in bytes.", func(n *nodes) float64 { return n.memMiB * mib }},
	} {
		family(r.name, r.help, func(_ *jobs, n *nodes) float64 { return r.value(n) })
	}
}
