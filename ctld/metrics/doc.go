// Package metrics renders what the controller says for Prometheus, from the View: no command, no lock of the writer. Package conf/metrics
// serves the pages.
//
//   - /metrics: the names of the exporter whose figures dashboard 4323 of grafana.com shows (slurm_nodes_*, slurm_queue_*, …), and our own
//     (sluice_*).
//   - /targets.json: the nodes, for Prometheus' HTTP service discovery.
//   - /metrics/jobs, /metrics/nodes, /metrics/partitions, /metrics/scheduler and /metrics/jobs-users-accts: the names of Slurm 25.11.
//     Some are those of the exporter with other labels, which is why they are pages of their own.
//
// # What is counted
//
// One walk over the jobs and one over the nodes make a tally for all pages, at most once a second. A record that stands for many tasks of
// an array counts as so many jobs, as squeue -r shows it.
//
// # How many series there are
//
// Nodes and partitions are as many as the cluster has. Of users and accounts the first Top by jobs have series of their own, what is left
// is summed up as "other". Reasons are Slurm's words. No series is of a job, and none says what a job is called.
//
// # What the writer pays
//
// The histograms are fed by an observer of the loop (Watch), which adds a number or two for each job that starts or ends.
package metrics
