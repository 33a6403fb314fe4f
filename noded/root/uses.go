package root

import (
	"os"

	"github.com/sluice-hpc/sluice/noded/gpufiles"
)

// showUses updates the files that tell metric exporters which job uses which GPU.
func (r *Root) showUses() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.showUsesLocked()
}

func (r *Root) showUsesLocked() {
	s := gpufiles.State{Dirs: r.useDirs(), Devices: r.gpus.Report().GetDevices(), Spare: r.gpus.Spare()}
	for key, k := range r.known {
		if len(k.brief.GetDevices()) > 0 && !k.finished && !k.refused() && key.Holder() {
			s.Uses = append(s.Uses, gpufiles.Use{Job: key.Job, UID: k.brief.Uid, Devices: k.brief.Devices})
		}
	}
	r.uses.Show(s)
}

// useDirs returns the configured directories, or the usual ones if this daemon runs as root and has the machine to itself.
func (r *Root) useDirs() gpufiles.Dirs {
	p := r.settings.GetGpu()
	dir := func(set, usual string) string {
		switch {
		case set == "off", set == "" && (!r.o.GPUFiles || os.Geteuid() != 0):
			return ""
		case set == "" || set == usual:
			return usual
		}
		if err := r.judge.Dir(set); err != nil {
			if !r.said[err.Error()] && len(r.said) < 1000 {
				r.said[err.Error()] = true
				r.log.Error("cannot write the files for GPU metric exporters", "err", err)
			}
			return ""
		}
		return set
	}
	return gpufiles.Dirs{JobMap: dir(p.GetJobMapDir(), gpufiles.UsualJobMap), Stat: dir(p.GetStatDir(), gpufiles.UsualStat)}
}
