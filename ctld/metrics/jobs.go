package metrics

import (
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// jobRow is a family of Slurm's about jobs.
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
	flaggedRow("configuring", pb.JobConfiguring, "Jobs whose nodes are being made ready."),
	{"cpus_alloc", "CPUs that jobs have.", func(c *jobs) float64 { return c.cpus }},
	stateRow("deadline", pb.JobState_JOB_DEADLINE, "Jobs that ended at their deadline."),
	{"expediting", "Always 0: no job is expedited.", func(*jobs) float64 { return 0 }},
	stateRow("failed", pb.JobState_JOB_FAILED, "Jobs that ended with another exit code than 0."),
	{"fed_requeued", "Always 0: there are no federations.", func(*jobs) float64 { return 0 }},
	{"finished", "Jobs that have ended, of those that are still shown (MinJobAge).", func(c *jobs) float64 { return c.finished }},
	{"gpus_alloc", "GPUs and MIG instances that jobs have.", func(c *jobs) float64 { return c.gpus }},
	{"hold", "Pending jobs that are held.", func(c *jobs) float64 { return c.held }},
	{"memory_alloc", "Memory that jobs have, in bytes.", func(c *jobs) float64 { return c.memMiB * mib }},
	stateRow("node_failed", pb.JobState_JOB_NODE_FAIL, "Jobs that ended because a node failed."),
	{"nodes_alloc", "Nodes that jobs have; one that several share counts for each.", func(c *jobs) float64 { return c.nodes }},
	stateRow("outofmemory", pb.JobState_JOB_OUT_OF_MEMORY, "Jobs that ended because they had no more memory."),
	stateRow("pending", pb.JobState_JOB_PENDING, "Jobs that wait, held ones among them."),
	flaggedRow("powerup_node", pb.JobPowerUp, "Jobs whose nodes are being powered up."),
	stateRow("preempted", pb.JobState_JOB_PREEMPTED, "Jobs that ended for others."),
	flaggedRow("requeued", pb.JobRequeued, "Jobs that are being requeued."),
	flaggedRow("resizing", pb.JobResizing, "Jobs that are being resized."),
	flaggedRow("revoked", pb.JobRevoked, "Jobs that were revoked."),
	stateRow("running", pb.JobState_JOB_RUNNING, "Jobs that run."),
	flaggedRow("signaling", pb.JobSignaling, "Jobs that are being sent a signal."),
	flaggedRow("stageout", pb.JobStageOut, "Jobs whose files are being staged out."),
	{"started", "Jobs that have started at least once, of those that are still shown.", func(c *jobs) float64 { return c.started }},
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
	family("jobs_max_job_nodes", "The most nodes that a pending job can use.",
		func(j *jobs, _ *nodes) float64 { return float64(j.maxNodes) })
	family("jobs_max_job_nodes_nohold", "The most nodes that a pending job can use that is not held.",
		func(j *jobs, _ *nodes) float64 { return float64(j.maxNodesFree) })
	family("jobs_min_job_nodes", "The most nodes that a pending job needs.",
		func(j *jobs, _ *nodes) float64 { return float64(j.minNodes) })
	family("jobs_min_job_nodes_nohold", "The most nodes that a pending job needs that is not held.",
		func(j *jobs, _ *nodes) float64 { return float64(j.minNodesFree) })
	family("jobs_wait_part_node_limit", "Jobs that wait because the partition has too few nodes for them.",
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
		{"nodes_cpus_alloc", "CPUs of its nodes that jobs have.", func(n *nodes) float64 { return n.cpusAlloc }},
		{"nodes_cpus_efctv", "CPUs of its nodes that jobs can have.", func(n *nodes) float64 { return n.cpus }},
		{"nodes_cpus_idle", "CPUs of its nodes that a job could have now.", func(n *nodes) float64 { return n.idle }},
		{"nodes_mem_alloc", "Memory of its nodes that jobs have, in bytes.", func(n *nodes) float64 { return n.memAlloc * mib }},
		{"nodes_mem_avail", "Memory of its nodes that jobs do not have, in bytes.",
			func(n *nodes) float64 { return max(0, n.memMiB-n.memAlloc) * mib }},
		{"nodes_mem_free", "Memory of its nodes that no process uses, in bytes.", func(n *nodes) float64 { return n.memFree * mib }},
		{"nodes_mem_tot", "Memory of its nodes, in bytes.", func(n *nodes) float64 { return n.memMiB * mib }},
	} {
		family(r.name, r.help, func(_ *jobs, n *nodes) float64 { return r.value(n) })
	}
}
