package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/usage"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// usesFile keeps the device use of running steps across restarts of the daemon.
const usesFile = "uses.pb"

// look measures what the running steps use: all descendants of a step's shim, which no process of the step can escape. It reads a
// file for each process of the machine, so there is one scan at a time.
func (r *Root) look(context.Context, *nodepb.Request) (*nodepb.Answer, error) {
	r.mu.Lock()
	if r.looking {
		r.mu.Unlock()
		return nil, errors.New("a scan is under way already")
	}
	r.looking = true
	var list []*known
	var pids []int
	for _, k := range r.known {
		if pid := k.rep.GetPid(); pid > 0 && k.rep.Phase == pb.StepPhase_STEP_RUNNING {
			list, pids = append(list, k), append(pids, int(pid))
		}
	}
	r.mu.Unlock()
	var found []*pb.StepUsage
	if len(list) > 0 {
		table := usage.Read()
		for i, k := range list {
			if shim := table.Parent(pids[i]); shim > 1 { // else the step has just ended
				found = append(found, r.see(k, table.Below(shim)))
			}
		}
	}
	r.keepUses(found)
	r.mu.Lock()
	r.looking = false
	r.mu.Unlock()
	return &nodepb.Answer{Usage: found}, nil
}

// findFault checks whether this node can start steps.
func (r *Root) findFault(ctx context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	why := r.steps.Fault(ctx, o.GetCheck().All)
	if why == "" {
		why = r.judge.Fault()
	}
	return &nodepb.Answer{Fault: why}, nil
}

func (r *Root) see(k *known, t usage.Total) *pb.StepUsage {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.peak.See(t)
	u := t.Message(k.key, k.peak)
	u.Devices = r.gpus.Recorder().Use(k.name)
	return u
}

// keepUses stores the device use. Losing it only costs figures, so nothing is synced.
func (r *Root) keepUses(list []*pb.StepUsage) {
	m := &pb.NodeReport{}
	for _, u := range list {
		if len(u.Devices) > 0 {
			m.Usage = append(m.Usage, &pb.StepUsage{Key: u.Key, Devices: u.Devices})
		}
	}
	path := filepath.Join(r.sp.dir, usesFile)
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
		r.log.Warn("cannot store the GPU use of jobs: a restart of the node daemon will lose it", "err", err)
	}
}

// loadUses reads the file of keepUses; an unreadable file counts as empty.
func (r *Root) loadUses() map[agent.Key][]*pb.DeviceUse {
	prior := map[agent.Key][]*pb.DeviceUse{}
	b, err := os.ReadFile(filepath.Join(r.sp.dir, usesFile))
	m := &pb.NodeReport{}
	if err != nil || proto.Unmarshal(b, m) != nil {
		return prior
	}
	for _, u := range m.Usage {
		prior[agent.KeyOf(u.Key)] = u.Devices
	}
	return prior
}
