package format

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestJobUse: the line of what a job has used stands in its block as soon as a node has reported, with -d or where the job has GPUs, and a
// figure that no driver reports is n/a.
func TestJobUse(t *testing.T) {
	c := testContext()
	hour := int64(3600e9)
	ran := func(gpus bool, use ...*msg.StepUsage) *msg.JobRecord {
		r := &msg.JobRecord{Id: 7, Spec: &msg.JobSpec{Uid: 1}, State: msg.JobState_JOB_COMPLETED, StartNs: hour, EndNs: 2 * hour,
			NumCpus: 2, Alloc: []*msg.NodeAlloc{{Node: "n1", Cpus: 2, MemMib: 100}}, Usage: use}
		if gpus {
			r.Alloc[0].Devices = []*msg.GresDevice{{Name: "gpu", Id: "G1"}, {Name: "gpu", Id: "G2"}}
		}
		return r
	}
	use := func(devices ...*msg.DeviceUse) *msg.StepUsage {
		return &msg.StepUsage{Node: "n1", CpuUsecUser: 1800e6, MaxRssKib: 25 << 10, Devices: devices}
	}
	one := &msg.DeviceUse{UtilPercent: 40, MaxMemoryMib: 1000, EnergyMj: 5000000, Samples: 9}
	two := &msg.DeviceUse{UtilPercent: 60, MaxMemoryMib: 3000, EnergyMj: 2000000, Samples: 9}
	mute := &msg.DeviceUse{UtilPercent: -1, MaxMemoryMib: -1, EnergyMj: -1, Samples: 9}
	once := &msg.DeviceUse{UtilPercent: 5, MaxMemoryMib: 10, EnergyMj: 0, Samples: 1}
	const cpu = "CPUEfficiency=25.00% MemEfficiency=25.00%"
	for _, tt := range []struct {
		r       *msg.JobRecord
		details int
		want    string
	}{
		{ran(false, use()), 0, ""},
		{ran(false, use()), 1, cpu},
		{ran(false), 1, ""},
		{ran(true), 1, ""},
		{ran(true, use(one, two)), 0, cpu + " GPUUtil=50.00% GPUMem=4000M ConsumedEnergy=7000"},
		{ran(true, use(one, mute)), 0, cpu + " GPUUtil=40.00% GPUMem=1000M ConsumedEnergy=5000"},
		{ran(true, use(mute)), 0, cpu + " GPUUtil=n/a GPUMem=n/a ConsumedEnergy=n/a"},
		{ran(true, use(once)), 0, cpu + " GPUUtil=5.00% GPUMem=10M ConsumedEnergy=n/a"},
	} {
		block := string(AppendJob(nil, c, tt.r, false, tt.details))
		got := ""
		if i := strings.Index(block, "CPUEfficiency"); i >= 0 {
			got, _, _ = strings.Cut(block[i:], "\n")
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
