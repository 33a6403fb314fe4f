package metrics

import (
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// exporter writes the families of the exporter behind dashboard 4323, with its labels.
func (s *Source) exporter(p *metrics.Page, t *tally, f figures, names bool) {
	exporterNodes(p, t)
	exporterQueue(p, &t.jobs)
	exporterCPUs(p, t)
	exporterScheduler(p, f, s.Now().Unix())
	exporterPartitions(p, t)
	if names {
		s.exporterPeople(p, t)
	}
}

func exporterNodes(p *metrics.Page, t *tally) {
	for _, r := range [][2]string{
		{"alloc", "Nodes with all CPUs allocated."}, {"comp", "Nodes on which a job is ending."},
		{"down", "Nodes that are DOWN, or have never reported."}, {"drain", "Nodes that accept no new jobs."},
		{"err", "Nodes with less hardware than slurm.conf defines."}, {"fail", "Nodes with the flag FAIL."},
		{"idle", "Idle nodes."}, {"maint", "Nodes in a reservation for maintenance."},
		{"mix", "Nodes with some CPUs allocated."}, {"resv", "Idle nodes in a reservation."},
		{"planned", "Idle nodes reserved for a pending job."}, {"other", "Nodes in none of the other states."},
	} {
		p.Gauge("slurm_nodes_"+r[0], r[1]).Add(t.allNodes.words[r[0]])
	}
	p.Gauge("slurm_nodes_total", "Nodes of the cluster.").Add(t.allNodes.all)
	for _, r := range []struct {
		name, help string
		value      func(*nodeTally) float64
	}{
		{"cpu_alloc", "CPUs allocated to jobs.", func(n *nodeTally) float64 { return float64(n.AllocCpus) }},
		{"cpu_idle", "CPUs available to a job now.", func(n *nodeTally) float64 { return float64(n.idle) }},
		{"cpu_other", "CPUs neither allocated nor available now.",
			func(n *nodeTally) float64 { return max(0, float64(n.Cpus)-float64(n.AllocCpus)-float64(n.idle)) }},
		{"cpu_total", "CPUs of the node.", func(n *nodeTally) float64 { return float64(n.Cpus) }},
		{"mem_alloc", "Memory allocated to jobs, in MiB.", func(n *nodeTally) float64 { return float64(n.AllocMemMib) }},
		{"mem_total", "Memory of the node, in MiB.", func(n *nodeTally) float64 { return float64(n.RealMemoryMib) }},
	} {
		p.Gauge("slurm_node_"+r.name, r.help, "node", "status")
		for i := range t.nodes {
			p.Add(r.value(&t.nodes[i]), t.nodes[i].Name, t.nodes[i].word())
		}
	}
}

func exporterQueue(p *metrics.Page, c *jobs) {
	state := func(s pb.JobState) float64 { return c.state[s] }
	for _, r := range []struct {
		name, help string
		value      float64
	}{
		{"pending", "Pending jobs.", state(pb.JobState_JOB_PENDING)},
		{"pending_dependency", "Pending jobs that wait for other jobs.", c.depends},
		// squeue shows these flags instead of RUNNING.
		{"running", "Running jobs.", max(0, state(pb.JobState_JOB_RUNNING)-c.flagged[pb.JobConfiguring])},
		{"suspended", "Suspended jobs.", state(pb.JobState_JOB_SUSPENDED)},
		{"cancelled", "Jobs that were cancelled, for MinJobAge.", state(pb.JobState_JOB_CANCELLED)},
		{"completing", "Jobs that are ending.", c.flagged[pb.JobCompleting]},
		{"completed", "Jobs that ended with exit code 0, for MinJobAge.", state(pb.JobState_JOB_COMPLETED)},
		{"configuring", "Jobs whose nodes are being prepared.", c.flagged[pb.JobConfiguring]},
		{"failed", "Jobs that failed, for MinJobAge.", state(pb.JobState_JOB_FAILED)},
		{"timeout", "Jobs that ended at their time limit, for MinJobAge.", state(pb.JobState_JOB_TIMEOUT)},
		{"preempted", "Jobs that were preempted, for MinJobAge.", state(pb.JobState_JOB_PREEMPTED)},
		{"node_fail", "Jobs that ended because a node failed, for MinJobAge.", state(pb.JobState_JOB_NODE_FAIL)},
		{"out_of_memory", "Jobs that ran out of memory, for MinJobAge.", state(pb.JobState_JOB_OUT_OF_MEMORY)},
	} {
		p.Gauge("slurm_queue_"+r.name, r.help).Add(r.value)
	}
}

func exporterCPUs(p *metrics.Page, t *tally) {
	n := &t.allNodes
	p.Gauge("slurm_cpus_alloc", "CPUs allocated to jobs.").Add(n.cpusAlloc)
	p.Gauge("slurm_cpus_idle", "CPUs available to a job now.").Add(n.idle)
	p.Gauge("slurm_cpus_other", "CPUs neither allocated nor available now.").Add(max(0, n.cpusAll-n.cpusAlloc-n.idle))
	p.Gauge("slurm_cpus_total", "CPUs of the cluster.").Add(n.cpusAll)
	p.Gauge("slurm_gpus_alloc", "GPUs allocated to jobs, at least in part.").Add(n.gpusHeld)
	p.Gauge("slurm_gpus_idle", "GPUs available to a job now.").Add(n.gpusFree)
	p.Gauge("slurm_gpus_other", "GPUs neither allocated nor available now.").Add(max(0, n.gpus-n.gpusHeld-n.gpusFree))
	p.Gauge("slurm_gpus_total", "GPUs of the cluster.").Add(n.gpus)
	p.Gauge("slurm_gpus_utilization", "Share of the GPUs that are allocated to jobs, at least in part, 0 to "+
		"1.").Add(n.gpusHeld / max(n.gpus, 1))
}

func exporterScheduler(p *metrics.Page, f figures, now int64) {
	minutes := max(float64(now)-f["since_s"], 60) / 60
	for _, r := range []struct {
		name, help string
		value      float64
	}{
		{"threads", "Calls of commands that are being answered.", f["active_calls"]},
		{"queue_size", "Always 0: orders for nodes are not queued.", 0},
		{"dbd_queue_size", "Jobs that are still to be written to the accounting database.", f["accounting_waiting"]},
		{"last_cycle", "Duration of the last pass, in microseconds.", f.us("pass_last_ns")},
		{"mean_cycle", "Average duration of a pass, in microseconds.", meanPassUS(f)},
		{"cycle_per_minute", "Passes of the scheduler in a minute.", f["passes"] / minutes},
		{"backfill_last_cycle", "Duration of the last pass, in microseconds.", f.us("pass_last_ns")},
		{"backfill_mean_cycle", "Average duration of a pass, in microseconds.", meanPassUS(f)},
		{"backfill_depth_mean", "Jobs that a pass examines, on average.", f.mean("tried")},
		{"backfilled_jobs_since_start_total", "Jobs that were backfilled since the controller started.", f["backfilled_ever"]},
		{"backfilled_jobs_since_cycle_total", "Jobs that were backfilled since the counters began.", f["backfilled"]},
		{"backfilled_heterogeneous_total", "Always 0: there are no heterogeneous jobs.", 0},
	} {
		p.Gauge("slurm_scheduler_"+r.name, r.help).Add(r.value)
	}
}

func exporterPartitions(p *metrics.Page, t *tally) {
	for _, r := range []struct {
		name, help string
		value      func(j *jobs, n *nodes) float64
	}{
		{"cpus_allocated", "CPUs of its nodes allocated to jobs.", func(_ *jobs, n *nodes) float64 { return n.cpusAlloc }},
		{"cpus_idle", "CPUs of its nodes available to a job now.", func(_ *jobs, n *nodes) float64 { return n.idle }},
		{"cpus_other", "CPUs of its nodes neither allocated nor available now.",
			func(_ *jobs, n *nodes) float64 { return max(0, n.cpusAll-n.cpusAlloc-n.idle) }},
		{"cpus_total", "CPUs of its nodes.", func(_ *jobs, n *nodes) float64 { return n.cpusAll }},
		{"jobs_pending", "Pending jobs.", func(j *jobs, _ *nodes) float64 { return j.state[pb.JobState_JOB_PENDING] }},
	} {
		p.Gauge("slurm_partition_"+r.name, r.help, "partition")
		for _, part := range t.view.Partitions() {
			p.Add(r.value(t.partitions[part.Name], t.partNodes[part.Name]), part.Name)
		}
	}
}

func (s *Source) exporterPeople(p *metrics.Page, t *tally) {
	for _, k := range []struct {
		label string
		list  []named
	}{{"account", topmost(t.accounts, s.Top())}, {"user", topmost(t.users, s.Top())}} {
		for _, r := range []struct {
			name, help string
			value      func(*jobs) float64
		}{
			{"jobs_pending", "Pending jobs.", func(c *jobs) float64 { return c.state[pb.JobState_JOB_PENDING] }},
			{"jobs_running", "Running jobs.", func(c *jobs) float64 { return c.state[pb.JobState_JOB_RUNNING] }},
			{"jobs_suspended", "Suspended jobs.", func(c *jobs) float64 { return c.state[pb.JobState_JOB_SUSPENDED] }},
			{"cpus_running", "CPUs allocated to jobs.", func(c *jobs) float64 { return c.cpus }},
			{"gpus_running", "GPUs and MIG instances allocated to jobs.", func(c *jobs) float64 { return c.gpus }},
		} {
			p.Gauge("slurm_"+k.label+"_"+r.name, r.help, k.label)
			for _, who := range k.list {
				p.Add(r.value(who.jobs), who.name)
			}
		}
	}
}
