package noded

import (
	"context"
	"os"

	"github.com/sluice-hpc/sluice/noded/gpufiles"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// showUses has the files written that tell exporters of metrics whose job uses which GPU.
func (n *node) showUses() {
	n.usesChanged = false
	s := gpufiles.State{Dirs: n.useDirs(), Devices: n.gpus.Report().GetDevices(), Spare: n.gpus.Spare()}
	for _, j := range n.jobs {
		if len(j.devices) > 0 && j.phase != pb.StepPhase_STEP_ENDED && !j.refused {
			s.Uses = append(s.Uses, gpufiles.Use{Job: j.key.Job, UID: j.uid, Devices: j.devices})
		}
	}
	n.uses.Show(s)
}

// useDirs are the folders of the settings, or the usual ones, which are for a daemon of root's that has the machine to itself.
func (n *node) useDirs() gpufiles.Dirs {
	p := n.settings.GetGpu()
	dir := func(set, usual string) string {
		switch {
		case set == "off", set == "" && (!n.o.GPUFiles || os.Geteuid() != 0):
			return ""
		case set == "":
			return usual
		}
		return set
	}
	return gpufiles.Dirs{JobMap: dir(p.GetJobMapDir(), gpufiles.UsualJobMap), Stat: dir(p.GetStatDir(), gpufiles.UsualStat)}
}

func (n *node) runUses(ctx context.Context) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		n.uses.Run(ctx)
	}()
}
