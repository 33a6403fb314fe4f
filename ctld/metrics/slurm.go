package metrics

import "github.com/sluice-hpc/sluice/internal/metrics"

// figures are the counters of sdiag(1), by its names for them.
type figures map[string]float64

// us returns a duration in microseconds.
func (f figures) us(name string) float64 { return float64(int64(f[name] / 1e3)) }

// mean divides a sum by the number of passes.
func (f figures) mean(name string) float64 { return f[name] / max(f["passes"], 1) }

// schedRow is a family of Slurm's metrics about the scheduler. Sluice has one scheduler, which backfills: both halves of sdiag show it.
type schedRow struct {
	name, help string
	value      func(figures) float64
}

func plain(name string) func(figures) float64 { return func(f figures) float64 { return f[name] } }
func micro(name string) func(figures) float64 { return func(f figures) float64 { return f.us(name) } }
func mean(name string) func(figures) float64  { return func(f figures) float64 { return f.mean(name) } }
func zero(figures) float64                    { return 0 }
func wholeQueue(f figures) float64            { return f["passes"] - f["truncated"] }
func meanPassUS(f figures) float64            { return f.mean("pass_total_ns") / 1e3 }

// schedRows are the families of Slurm 25.11. All are gauges, as there: the counters restart at midnight UTC and with sdiag --reset.
var schedRows = []schedRow{
	{"agent_cnt", "Nodes that are connected.", plain("links")},
	{"agent_queue_size", "Always 0: orders for nodes are not queued.", zero},
	{"agent_thread_cnt", "Nodes that are connected.", plain("links")},
	{"backfilled_het_jobs", "Always 0: there are no heterogeneous jobs.", zero},
	{"backfilled_jobs", "Jobs that were backfilled since the controller started.", plain("backfilled_ever")},
	{"bf_active", "Always 0: a pass is never visible to clients.", zero},
	{"bf_cycle_cnt", "Passes of the scheduler.", plain("passes")},
	{"bf_cycle_last", "Duration of the last pass, in microseconds.", micro("pass_last_ns")},
	{"bf_cycle_max", "Duration of the longest pass, in microseconds.", micro("pass_max_ns")},
	{"bf_cycle_tot", "Duration of all passes, in microseconds.", micro("pass_total_ns")},
	{"bf_depth_mean", "Jobs that a pass examines, on average.", mean("tried")},
	{"bf_depth_tot", "Jobs that all passes have examined.", plain("tried")},
	{"bf_depth_try_tot", "Jobs that all passes have tried to place.", plain("tried")},
	{"bf_exit_end", "Passes that went through the whole queue.", wholeQueue},
	{"bf_exit_max_job_start", "Always 0: the starts of a pass are not limited.", zero},
	{"bf_exit_max_job_test", "Always 0: see slurm_bf_exit_timeout.", zero},
	{"bf_exit_state_changed", "Always 0: a pass works on a state of its own.", zero},
	{"bf_exit_table_limit", "Always 0: the table of a pass is not limited.", zero},
	{"bf_exit_timeout", "Passes that ended before the end of the queue and were continued.", plain("truncated")},
	{"bf_last_depth", "Jobs that the last pass examined.", plain("last_tried")},
	{"bf_last_depth_try", "Jobs that the last pass tried to place.", plain("last_tried")},
	{"bf_mean_cycle", "Average duration of a pass, in microseconds.", meanPassUS},
	{"bf_mean_table_sz", "Jobs that a pass examines, on average.", mean("tried")},
	{"bf_queue_len", "Jobs that were pending at the last pass.", plain("queue")},
	{"bf_queue_len_mean", "Jobs that were pending at a pass, on average.", mean("queued")},
	{"bf_queue_len_tot", "Pending jobs, summed over all passes.", plain("queued")},
	{"bf_table_size", "Jobs that the last pass examined.", plain("last_tried")},
	{"bf_table_size_tot", "Jobs that all passes have examined.", plain("tried")},
	{"bf_try_depth_mean", "Jobs that a pass tries to place, on average.", mean("tried")},
	{"bf_when_last_cycle", "Time of the last pass, in seconds since 1970.", plain("pass_last_s")},
	{"last_backfilled_jobs", "Jobs that were backfilled since the counters began.", plain("backfilled")},
	{"last_proc_req_start", "Time of these figures, in seconds since 1970.", plain("now_s")},
	{"sched_exit_end", "Passes that went through the whole queue.", wholeQueue},
	{"sched_exit_lic", "Always 0: licenses end no pass.", zero},
	{"sched_exit_max_depth", "Always 0: see slurm_sched_exit_timeout.", zero},
	{"sched_exit_max_job_start", "Always 0: the starts of a pass are not limited.", zero},
	{"sched_exit_rpc_cnt", "Always 0: calls do not hold up a pass.", zero},
	{"sched_exit_timeout", "Passes that ended before the end of the queue and were continued.", plain("truncated")},
	{"sched_mean_cycle", "Average duration of a pass, in microseconds.", meanPassUS},
	{"sched_mean_depth_cycle", "Jobs that a pass examines, on average.", mean("tried")},
	{"sched_stats_timestamp", "Time of these figures, in seconds since 1970.", plain("now_s")},
	{"schedule_cycle_cnt", "Passes of the scheduler.", plain("passes")},
	{"schedule_cycle_depth", "Jobs that all passes have examined.", plain("tried")},
	{"schedule_cycle_last", "Duration of the last pass, in microseconds.", micro("pass_last_ns")},
	{"schedule_cycle_max", "Duration of the longest pass, in microseconds.", micro("pass_max_ns")},
	{"schedule_cycle_tot", "Duration of all passes, in microseconds.", micro("pass_total_ns")},
	{"schedule_queue_len", "Jobs that were pending at the last pass.", plain("queue")},
	{"sdiag_job_states_ts", "Time when pending and running jobs were counted, in seconds since 1970.", plain("now_s")},
	{"sdiag_jobs_canceled", "Jobs that were cancelled since the counters began.", plain("jobs_canceled")},
	{"sdiag_jobs_completed", "Jobs that ended since the counters began.", plain("jobs_completed")},
	{"sdiag_jobs_failed", "Jobs that ended because of a node since the counters began.", plain("jobs_failed")},
	{"sdiag_jobs_pending", "Pending jobs.", plain("pending")},
	{"sdiag_jobs_running", "Running jobs.", plain("running")},
	{"sdiag_jobs_started", "Jobs that started since the counters began.", plain("jobs_started")},
	{"sdiag_jobs_submitted", "Jobs that were submitted since the counters began.", plain("jobs_submitted")},
	{"sdiag_latency", "Duration of a thousand reads of the clock at the controller's start, in microseconds.", plain("latency_us")},
	{"server_thread_cnt", "Calls of commands that are being answered.", plain("active_calls")},
	{"slurmdbd_queue_size", "Jobs that are still to be written to the accounting database.", plain("accounting_waiting")},
}

// figures returns those of sdiag, and the time of the query.
func (s *Source) figures() figures {
	f := figures(s.Figures())
	f["now_s"] = float64(s.Now().Unix())
	return f
}

// schedulerPage is /metrics/scheduler.
func (s *Source) schedulerPage(p *metrics.Page, f figures) {
	for _, r := range schedRows {
		p.Gauge("slurm_"+r.name, r.help).Add(r.value(f))
	}
}
