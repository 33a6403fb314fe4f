// Package metrics writes a node's Prometheus page: its GPUs and its running jobs. It uses data that noded-link has anyway:
// nothing is measured for a reader.
//
// The names slurm_job_* and their labels and units are those of slurm-job-exporter, which dashboards and portals know. The other
// names are Sluice's own, in the units that Prometheus recommends. noded-root opens the listening socket, because noded-link
// cannot.
package metrics

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Node is the content of the page.
type Node struct {
	Linked  bool // with the controller
	Load    float64
	FreeMiB uint64
	Version string
	Devices []*pb.Device
	Samples []*pb.DeviceSample
	Jobs    []Job
}

// Job is a running job with its resources and their use on this node.
type Job struct {
	ID            uint32
	User, Account string
	CPUs          uint32
	MemMiB        uint64 // 0: all
	Devices       []*pb.GresDevice
	Usage         []*pb.StepUsage // of its steps, when last sampled
}

// maxJobs bounds the jobs that have series; the page shows how many are left out.
const maxJobs = 500

// Write writes the page; without names it does not identify users.
func (n *Node) Write(p *metrics.Page, names bool) {
	slices.SortFunc(n.Jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	p.Gauge("sluice_noded_build_info", "1, with the version of the node daemon.", "version").Add(1, n.Version)
	p.Gauge("sluice_noded_linked", "1: the stream to the controller is open.").Add(truth(n.Linked))
	p.Gauge("sluice_noded_load1", "Processes that ran or waited for a CPU in the last minute, as in /proc/loadavg.").Add(n.Load)
	p.Gauge("sluice_noded_memory_free_bytes", "Memory that no process uses.").Add(float64(n.FreeMiB) * mib)
	p.Gauge("sluice_noded_jobs", "Jobs that run on this node.").Add(float64(len(n.Jobs)))
	n.devices(p)
	if !names {
		return
	}
	p.Gauge("sluice_noded_jobs_left_out", "Jobs that run here and have no series, because there are too many.").
		Add(float64(max(0, len(n.Jobs)-maxJobs)))
	n.Jobs = n.Jobs[:min(len(n.Jobs), maxJobs)]
	n.jobs(p)
	n.jobDevices(p)
}

const mib = 1 << 20

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sampleRow is a metric family about GPUs; a value below 0 is unknown to the driver.
type sampleRow struct {
	name, help string
	counter    bool
	value      func(*pb.DeviceSample) int64
	scale      float64
}

var sampleRows = []sampleRow{
	{"sluice_gpu_utilization_ratio", "Share of the time in which the GPU computed, 0 to 1.", false,
		func(s *pb.DeviceSample) int64 { return s.UtilPercent }, 0.01},
	{"sluice_gpu_memory_used_bytes", "Memory of the GPU that is in use.", false,
		func(s *pb.DeviceSample) int64 { return s.MemoryUsedMib }, mib},
	{"sluice_gpu_temperature_celsius", "Temperature of the GPU.", false, func(s *pb.DeviceSample) int64 { return s.TemperatureC }, 1},
	{"sluice_gpu_power_watts", "Power that the GPU draws.", false, func(s *pb.DeviceSample) int64 { return s.PowerMw }, 1e-3},
	{"sluice_gpu_energy_joules_total", "Energy that the GPU has used since its driver was loaded.", true,
		func(s *pb.DeviceSample) int64 { return s.EnergyMj }, 1e-3},
	{"sluice_gpu_sm_clock_hertz", "Clock of the multiprocessors.", false, func(s *pb.DeviceSample) int64 { return s.SmClockMhz }, 1e6},
	{"sluice_gpu_memory_clock_hertz", "Clock of the GPU's memory.", false,
		func(s *pb.DeviceSample) int64 { return s.MemoryClockMhz }, 1e6},
	{"sluice_gpu_ecc_uncorrected_total", "Errors of the GPU's memory that were not corrected since its driver was loaded.", true,
		func(s *pb.DeviceSample) int64 { return s.EccUncorrected }, 1},
}

// devices writes the GPUs and MIG instances, whoever holds them.
func (n *Node) devices(p *metrics.Page) {
	gpus := slices.DeleteFunc(slices.Clone(n.Devices), func(d *pb.Device) bool { return d.Name != "gpu" || d.Id == "" })
	samples := n.byID()
	labels := func(d *pb.Device) []string { return []string{strconv.FormatUint(uint64(d.Index), 10), d.Id, kind(d)} }
	p.Gauge("sluice_gpu_healthy", "0: the GPU is faulty, or used by a process outside any job, and not given out.",
		"gpu", "uuid", "gpu_type")
	for _, d := range gpus {
		p.Add(truth(d.Fault == "" && d.Foreign == ""), labels(d)...)
	}
	p.Gauge("sluice_gpu_memory_bytes", "Memory of the GPU.", "gpu", "uuid", "gpu_type")
	for _, d := range gpus {
		p.Add(float64(d.MemoryMib)*mib, labels(d)...)
	}
	for _, r := range sampleRows {
		begin := p.Gauge
		if r.counter {
			begin = p.Counter
		}
		begin(r.name, r.help, "gpu", "uuid", "gpu_type")
		for _, d := range gpus {
			if s := samples[d.Id]; s != nil && r.value(s) >= 0 {
				p.Add(float64(r.value(s))*r.scale, labels(d)...)
			}
		}
	}
	p.Gauge("sluice_gpu_throttled", "1: the clocks of the GPU are low because of power or heat.", "gpu", "uuid", "gpu_type")
	for _, d := range gpus {
		if s := samples[d.Id]; s != nil && s.Throttle != "n/a" {
			p.Add(truth(s.Throttle != ""), labels(d)...)
		}
	}
}

func (n *Node) byID() map[string]*pb.DeviceSample {
	m := make(map[string]*pb.DeviceSample, len(n.Samples))
	for _, s := range n.Samples {
		m[s.Id] = s
	}
	return m
}

func kind(d *pb.Device) string { return cmp.Or(d.Model, d.Type) }

// jobs writes the CPUs and memory of jobs and their use.
func (n *Node) jobs(p *metrics.Page) {
	sum := func(j *Job, of func(*pb.StepUsage) uint64) (all float64) {
		for _, u := range j.Usage {
			all += float64(of(u))
		}
		return all
	}
	for _, r := range []struct {
		name, help string
		value      func(*Job) float64
	}{
		{"slurm_job_memory_usage", "Memory that the job uses on this node, in bytes.",
			func(j *Job) float64 { return 1024 * sum(j, (*pb.StepUsage).GetRssKib) }},
		{"slurm_job_memory_max", "The most memory that the job has used on this node, in bytes.",
			func(j *Job) float64 { return 1024 * sum(j, (*pb.StepUsage).GetMaxRssKib) }},
		{"slurm_job_memory_limit", "Memory of this node that the job was given, in bytes; 0: all.",
			func(j *Job) float64 { return float64(j.MemMiB) * mib }},
		{"slurm_job_process_count", "Processes of the job on this node, at most a hundred a step.",
			func(j *Job) float64 { return sum(j, func(u *pb.StepUsage) uint64 { return uint64(len(u.PidList)) }) }},
		{"slurm_job_cpus", "CPUs of this node that the job was given.", func(j *Job) float64 { return float64(j.CPUs) }},
	} {
		p.Gauge(r.name, r.help, "account", "slurmjobid", "user")
		for i := range n.Jobs {
			j := &n.Jobs[i]
			p.Add(r.value(j), j.Account, strconv.FormatUint(uint64(j.ID), 10), j.User)
		}
	}
	p.Counter("slurm_job_core_usage_total", "CPU time that the job has used on this node, in nanoseconds; of all of its cores together.",
		"account", "core", "slurmjobid", "user")
	for i := range n.Jobs {
		j := &n.Jobs[i]
		used := sum(j, func(u *pb.StepUsage) uint64 { return u.CpuUsecUser + u.CpuUsecSystem })
		p.Add(1000*used, j.Account, "all", strconv.FormatUint(uint64(j.ID), 10), j.User)
	}
}

// jobDevices writes the GPUs of jobs.
func (n *Node) jobDevices(p *metrics.Page) {
	samples, devices := n.byID(), map[string]*pb.Device{}
	for _, d := range n.Devices {
		devices[d.Id] = d
	}
	for _, r := range []struct {
		name, help string
		value      func(*pb.DeviceSample) int64
		scale      float64
	}{
		{"slurm_job_utilization_gpu", "Percentage of the time in which a GPU of the job computed.",
			func(s *pb.DeviceSample) int64 { return s.UtilPercent }, 1},
		{"slurm_job_memory_usage_gpu", "Memory that is in use on a GPU of the job, in bytes.",
			func(s *pb.DeviceSample) int64 { return s.MemoryUsedMib }, mib},
		{"slurm_job_power_gpu", "Power that a GPU of the job draws, in milliwatts.",
			func(s *pb.DeviceSample) int64 { return s.PowerMw }, 1},
		{"slurm_job_temperature_gpu", "Temperature of a GPU of the job, in degrees Celsius.",
			func(s *pb.DeviceSample) int64 { return s.TemperatureC }, 1},
	} {
		p.Gauge(r.name, r.help, "account", "gpu", "gpu_type", "slurmjobid", "user")
		for i := range n.Jobs {
			j := &n.Jobs[i]
			for _, d := range j.Devices {
				s, have := samples[d.Id], devices[d.Id]
				if s == nil || have == nil || d.Share > 0 || r.value(s) < 0 {
					continue
				}
				p.Add(float64(r.value(s))*r.scale, j.Account, strconv.FormatUint(uint64(have.Index), 10), kind(have),
					strconv.FormatUint(uint64(j.ID), 10), j.User)
			}
		}
	}
}
