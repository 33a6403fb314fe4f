package metrics

import (
	"fmt"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func read(t *testing.T, n Node, names bool) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	p := &metrics.Page{}
	n.Write(p, names)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(p.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	return string(p.Bytes()), families
}

func node() Node {
	return Node{Linked: true, Version: "1.2.3",
		Devices: []*pb.Device{{Name: "gpu", Id: "G0", Model: "NVIDIA A100", MemoryMib: 40960},
			{Name: "gpu", Id: "G1", Index: 1, Type: "a100", Fault: "XID 79"}, {Name: "nic", Id: "N0"}},
		Samples: []*pb.DeviceSample{{Id: "G0", UtilPercent: 50, MemoryUsedMib: 10, TemperatureC: 60, PowerMw: 250000, EnergyMj: -1},
			{Id: "G1", UtilPercent: -1, MemoryUsedMib: -1, TemperatureC: 40, PowerMw: -1, Throttle: "thermal"}},
		Jobs: []Job{{ID: 7, User: "alice", Account: "physics", CPUs: 4, MemMiB: 100, Devices: []*pb.GresDevice{{Name: "gpu", Id: "G0"}},
			Usage: []*pb.StepUsage{{RssKib: 1024, MaxRssKib: 2048, CpuUsecUser: 3e6, CpuUsecSystem: 1e6, PidList: []uint32{1, 2}},
				{RssKib: 1024}}}}}
}

func TestNode(t *testing.T) {
	text, _ := read(t, node(), true)
	for _, want := range []string{
		`sluice_gpu_utilization_ratio{gpu="0",uuid="G0",gpu_type="NVIDIA A100"} 0.5`,
		`sluice_gpu_temperature_celsius{gpu="1",uuid="G1",gpu_type="a100"} 40`,
		`sluice_gpu_power_watts{gpu="0",uuid="G0",gpu_type="NVIDIA A100"} 250`,
		`sluice_gpu_healthy{gpu="1",uuid="G1",gpu_type="a100"} 0`,
		`sluice_gpu_healthy{gpu="0",uuid="G0",gpu_type="NVIDIA A100"} 1`,
		`sluice_gpu_throttled{gpu="1",uuid="G1",gpu_type="a100"} 1`,
		`slurm_job_memory_usage{account="physics",slurmjobid="7",user="alice"} 2097152`,
		`slurm_job_memory_limit{account="physics",slurmjobid="7",user="alice"} 104857600`,
		`slurm_job_core_usage_total{account="physics",core="all",slurmjobid="7",user="alice"} 4000000000`,
		`slurm_job_utilization_gpu{account="physics",gpu="0",gpu_type="NVIDIA A100",slurmjobid="7",user="alice"} 50`,
		`slurm_job_power_gpu{account="physics",gpu="0",gpu_type="NVIDIA A100",slurmjobid="7",user="alice"} 250000`,
		"sluice_noded_linked 1", "sluice_noded_jobs 1",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("it does not say %s", want)
		}
	}
	for _, not := range []string{`sluice_gpu_utilization_ratio{gpu="1"`, `sluice_gpu_energy_joules_total{gpu="0"`, "N0"} {
		if strings.Contains(text, not) {
			t.Errorf("nobody has said %s", not)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestNobodyIsNamed(t *testing.T) {
	if text, _ := read(t, node(), false); strings.Contains(text, "alice") || strings.Contains(text, "physics") ||
		strings.Contains(text, "slurm_job_") || !strings.Contains(text, "sluice_gpu_healthy") {
		t.Errorf("everybody reads:\n%s", text)
	}
}

func TestJobsAreBounded(t *testing.T) {
	n := node()
	for i := range 2 * maxJobs {
		n.Jobs = append(n.Jobs, Job{ID: uint32(1000 + i), User: fmt.Sprint("u", i)})
	}
	_, families := read(t, n, true)
	if got := len(families["slurm_job_memory_usage"].Metric); got != maxJobs {
		t.Errorf("%d series", got)
	}
	if got := families["sluice_noded_jobs_left_out"].Metric[0].GetGauge().GetValue(); got != maxJobs+1 {
		t.Errorf("%v are left out", got)
	}
}
