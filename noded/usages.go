package noded

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/usage"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// usesFile keeps, across restarts of the daemon, what running steps have used of their devices so far.
const usesFile = "uses.pb"

// beginUse has the use of a step's devices recorded, going on from what an earlier daemon has recorded.
func (n *node) beginUse(j *job) {
	if len(j.devices) == 0 || j.recording || j.refused || j.phase == pb.StepPhase_STEP_ENDED {
		return
	}
	j.recording = true
	n.gpus.Recorder().Begin(j.name, j.devices, n.priorUse[j.key])
	delete(n.priorUse, j.key)
}

// endUse keeps what a step that has ended has used of its devices, for its report.
func (n *node) endUse(j *job) {
	if j.recording && j.phase == pb.StepPhase_STEP_ENDED {
		j.recording = false
		j.used = n.gpus.Recorder().End(j.name)
	}
}

// withDevices is an exit record with what was used of the devices.
func (j *job) withDevices(exit *pb.ExitRecord) *pb.ExitRecord {
	if len(j.used) == 0 || exit == nil {
		return exit
	}
	exit = proto.Clone(exit).(*pb.ExitRecord)
	if exit.Usage == nil {
		exit.Usage = &pb.StepUsage{CpuUsecUser: exit.CpuUsecUser, CpuUsecSystem: exit.CpuUsecSystem, MaxRssKib: exit.MaxRssKib}
	}
	exit.Usage.Devices = j.used
	return exit
}

// running is a step whose processes are looked at.
type running struct {
	job  *job
	key  *pb.StepKey
	name string
	pid  int
	peak usage.Peak
}

// lookAtSteps has the processes of the running steps looked at, beside the loop: it reads a file of each process of the machine. One
// look at a time.
func (n *node) lookAtSteps(ctx context.Context) {
	if n.looking || n.stream == nil {
		return
	}
	var list []running
	for _, j := range n.jobs {
		if pid := j.rep.GetPid(); pid > 0 && j.phase == pb.StepPhase_STEP_RUNNING {
			list = append(list, running{j, j.key.Proto(), j.name, int(pid), j.peak})
		}
	}
	if len(list) == 0 {
		return
	}
	n.looking = true
	n.work(ctx, func() func() {
		found := n.look(list)
		n.keepUses(found)
		return func() {
			n.looking, n.usages = false, nil
			for i := range list {
				list[i].job.peak = list[i].peak
			}
			for _, u := range found { // of a step that has ended meanwhile nobody wants to know
				if j := n.jobs[agent.KeyOf(u.Key)]; j != nil && j.phase == pb.StepPhase_STEP_RUNNING {
					n.usages = append(n.usages, u)
				}
			}
		}
	})
}

// look reads what the steps use: all descendants of a step's shim, which nothing of the step can leave.
func (n *node) look(list []running) (found []*pb.StepUsage) {
	table, now := usage.Read(), time.Now().UnixNano()
	for i := range list {
		r := &list[i]
		shim := table.Parent(r.pid)
		if shim <= 1 {
			continue // it has just ended
		}
		t := table.Below(shim)
		r.peak.See(t)
		u := t.Message(r.key, now, r.peak)
		u.Devices = n.gpus.Recorder().Use(r.name)
		found = append(found, u)
	}
	return found
}

// keepUses writes down what was used of devices. Losing it costs figures, so nothing is synced.
func (n *node) keepUses(list []*pb.StepUsage) {
	m := &pb.NodeReport{}
	for _, u := range list {
		if len(u.Devices) > 0 {
			m.Usage = append(m.Usage, &pb.StepUsage{Key: u.Key, Devices: u.Devices})
		}
	}
	path := filepath.Join(n.sp.dir, usesFile)
	if len(m.Usage) == 0 {
		_ = os.Remove(path)
		return
	}
	b, err := proto.Marshal(m)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		n.log.Warn("cannot keep what jobs use of their GPUs: a restart of the node daemon will lose it", "err", err)
	}
}

// loadUses reads what keepUses has written; what cannot be read is nothing.
func (n *node) loadUses() {
	n.priorUse = map[agent.Key][]*pb.DeviceUse{}
	b, err := os.ReadFile(filepath.Join(n.sp.dir, usesFile))
	m := &pb.NodeReport{}
	if err != nil || proto.Unmarshal(b, m) != nil {
		return
	}
	for _, u := range m.Usage {
		n.priorUse[agent.KeyOf(u.Key)] = u.Devices
	}
}
