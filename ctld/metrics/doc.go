// Package metrics renders the controller's Prometheus pages from the View: no command, no lock of the writer. Package
// internal/metrics serves them.
//
//   - /metrics: the names of the exporter behind dashboard 4323 of grafana.com (slurm_nodes_*, slurm_queue_*, …), and
//     our own (sluice_*).
//   - /targets.json: the nodes, for Prometheus' HTTP service discovery.
//   - /metrics/jobs, /metrics/nodes, /metrics/partitions, /metrics/scheduler and /metrics/jobs-users-accts: the names of
//     Slurm 25.11. Some are those of the exporter with other labels, so they are pages of their own.
//
// # Counting
//
// One walk over the jobs and one over the nodes make a tally for all pages, at most once a second. A record that stands
// for many tasks of an array counts as many jobs, as squeue -r shows it.
//
// # Number of series
//
// There are as many nodes and partitions as the cluster has. The first Top users and accounts by jobs have series of
// their own; the rest are summed up as "other". Reasons are Slurm's words. No series is of one job or contains a job's
// name.
//
// # Cost to the writer
//
// The histograms are fed by an observer of the loop (Watch), which adds a number or two for each job that starts or
// ends.
package metrics
