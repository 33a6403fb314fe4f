package gpu

import (
	"slices"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Recorder computes each step's use of its devices from samples. Monitor feeds it; the owner of the steps begins and ends them.
// Its methods may be called from any goroutine.
//
// Means are over the samples in the step's life that have the figure; a figure that no sample had is NA. Energy is the difference
// of the device's counter or, without one, power times the time between samples. A device is idle at a sample with load 0; its
// idle time runs from the first sample of the current idle series to the last.
//
// The load of a sample is that of the moments before it, so the first sample of a step (First) counts for energy alone. At the
// last one (Last) its processes are gone, so the memory of an earlier sample stays.
type Recorder struct {
	mu    sync.Mutex
	steps map[string]*stepUse
}

type stepUse struct {
	devices []*deviceUse
}

// deviceUse sums up samples.
type deviceUse struct {
	use       *pb.DeviceUse // totals; UtilPercent is computed from utilSum
	utilSum   int64
	utilCount int64
	lastAtNS  int64
	lastMJ    int64 // counter at the last sample; NA = unknown
	lastMW    int64
	idleNS    int64 // when the current idle series began; 0 = not idle
	idleFor   time.Duration
}

// NewRecorder returns a Recorder without steps.
func NewRecorder() *Recorder { return &Recorder{steps: map[string]*stepUse{}} }

// Begin starts to record a step, by any key, with its devices on this node. prior is the record of an earlier daemon, nil for a
// new step. A step that has begun already continues.
func (r *Recorder) Begin(key string, devices []*pb.GresDevice, prior []*pb.DeviceUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps[key] != nil {
		return
	}
	s := &stepUse{}
	for _, d := range devices {
		if d.GetId() == "" || slices.ContainsFunc(s.devices, func(o *deviceUse) bool { return o.use.Id == d.Id }) {
			continue // without identity, or several shares of one
		}
		s.devices = append(s.devices, newDeviceUse(d, prior))
	}
	r.steps[key] = s
}

func newDeviceUse(d *pb.GresDevice, prior []*pb.DeviceUse) *deviceUse {
	u := &deviceUse{lastMJ: NA, lastMW: NA, use: &pb.DeviceUse{Id: d.Id, Index: d.Index, Type: d.Type, UtilPercent: NA, MaxUtilPercent: NA,
		MemoryMib: NA, MaxMemoryMib: NA, EnergyMj: NA}}
	for _, p := range prior {
		if p.GetId() != d.Id {
			continue
		}
		u.use.MaxUtilPercent, u.use.MemoryMib, u.use.MaxMemoryMib, u.use.EnergyMj, u.use.Samples = p.MaxUtilPercent, p.MemoryMib,
			p.MaxMemoryMib, p.EnergyMj, p.Samples
		if p.UtilPercent >= 0 {
			u.utilCount, u.utilSum = int64(p.Samples), p.UtilPercent*int64(p.Samples)
		}
		u.idleFor = time.Duration(p.IdleS) * time.Second
	}
	return u
}

// Add adds samples, in order of time.
func (r *Recorder) Add(samples []*pb.DeviceSample) {
	r.each(samples, func(_ string, d *deviceUse, s *pb.DeviceSample) {
		d.load(s)
		d.memory(s)
		d.count(s)
	})
}

// First adds the first samples of steps.
func (r *Recorder) First(samples []*pb.DeviceSample) {
	r.each(samples, func(_ string, d *deviceUse, s *pb.DeviceSample) {
		if d.lastAtNS == 0 {
			d.count(s)
		}
	})
}

// Last adds the last samples of a step.
func (r *Recorder) Last(key string, samples []*pb.DeviceSample) {
	r.each(samples, func(k string, d *deviceUse, s *pb.DeviceSample) {
		if k != key {
			return
		}
		d.load(s)
		if d.use.MaxMemoryMib < 0 && s.MemoryUsedMib > 0 {
			d.memory(s)
		}
		d.count(s)
	})
}

// each calls add for each device of a step with a later sample.
func (r *Recorder) each(samples []*pb.DeviceSample, add func(key string, d *deviceUse, s *pb.DeviceSample)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, step := range r.steps {
		for _, d := range step.devices {
			for _, s := range samples {
				if s.Id == d.use.Id && s.AtNs > d.lastAtNS {
					add(key, d, s)
				}
			}
		}
	}
}

// Fewer returns the devices of steps with fewer samples than n, or none since this daemon started.
func (r *Recorder) Fewer(n uint64) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range r.steps {
		for _, d := range step.devices {
			if d.lastAtNS == 0 || uint64(d.use.Samples) < n {
				ids = append(ids, d.use.Id)
			}
		}
	}
	return ids
}

func (d *deviceUse) load(s *pb.DeviceSample) {
	d.use.MaxUtilPercent = max(d.use.MaxUtilPercent, s.UtilPercent)
	if s.UtilPercent >= 0 {
		d.utilSum += s.UtilPercent
		d.utilCount++
	}
	d.idle(s)
}

func (d *deviceUse) memory(s *pb.DeviceSample) {
	d.use.MemoryMib, d.use.MaxMemoryMib = s.MemoryUsedMib, max(d.use.MaxMemoryMib, s.MemoryUsedMib)
}

// count completes a sample.
func (d *deviceUse) count(s *pb.DeviceSample) {
	d.use.Samples++
	d.energy(s)
	d.lastAtNS, d.lastMJ, d.lastMW = s.AtNs, s.EnergyMj, s.PowerMw
}

// energy adds the energy since the last sample.
func (d *deviceUse) energy(s *pb.DeviceSample) {
	var more int64
	switch {
	case d.lastAtNS == 0:
		if s.EnergyMj < 0 && s.PowerMw < 0 {
			return
		}
	case s.EnergyMj >= 0 && d.lastMJ >= 0:
		more = s.EnergyMj - d.lastMJ
		if more < 0 { // the counter was reset
			more = s.EnergyMj
		}
	case s.PowerMw >= 0 && d.lastMW >= 0:
		more = int64(float64(s.PowerMw+d.lastMW) / 2 * float64(s.AtNs-d.lastAtNS) / 1e9)
	default:
		return
	}
	d.use.EnergyMj = max(0, d.use.EnergyMj) + more
}

func (d *deviceUse) idle(s *pb.DeviceSample) {
	switch {
	case s.UtilPercent != 0:
		d.idleNS, d.idleFor = 0, 0
	case d.idleNS == 0:
		d.idleNS = s.AtNs - int64(d.idleFor) // continues an earlier daemon's series
	}
	if d.idleNS != 0 {
		d.idleFor = time.Duration(s.AtNs - d.idleNS)
	}
}

func (d *deviceUse) total() *pb.DeviceUse {
	u := d.use
	out := &pb.DeviceUse{Id: u.Id, Index: u.Index, Type: u.Type, UtilPercent: NA, MaxUtilPercent: u.MaxUtilPercent, MemoryMib: u.MemoryMib,
		MaxMemoryMib: u.MaxMemoryMib,
		EnergyMj:     u.EnergyMj, IdleS: uint64(d.idleFor / time.Second), Samples: u.Samples}
	if d.utilCount > 0 {
		out.UtilPercent = (d.utilSum + d.utilCount/2) / d.utilCount
	}
	return out
}

// Devices returns the ids of a step's devices.
func (r *Recorder) Devices(key string) (ids []string) {
	for _, u := range r.Use(key) {
		ids = append(ids, u.Id)
	}
	return ids
}

// Use returns a step's use so far, in the order of its devices; nil for an unknown step.
func (r *Recorder) Use(key string) (out []*pb.DeviceUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.steps[key]; s != nil {
		for _, d := range s.devices {
			out = append(out, d.total())
		}
	}
	return out
}

// End returns the last Use of a step and forgets it.
func (r *Recorder) End(key string) []*pb.DeviceUse {
	out := r.Use(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, key)
	return out
}
