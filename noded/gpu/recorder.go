package gpu

import (
	"slices"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Recorder turns samples of devices into what each step has used of the devices that it holds. Monitor fills it; whoever reports
// the use of steps begins and ends them. Its methods may be called from any goroutine.
//
// Means are over the samples of the step's life that say something; a figure that no sample said is NA. Energy is the difference
// of the device's counter, or, where it has none, power over the time between samples. A device is idle at a sample whose load
// is 0; how long it has been is counted from the first such sample of the present row to the last.
//
// A load is that of the moments before its sample, so the one with which a step begins (First) counts for energy alone. The one with
// which it ends (Last) finds its processes gone, so the memory of an earlier sample stays.
type Recorder struct {
	mu    sync.Mutex
	steps map[string]*stepUse
}

type stepUse struct {
	devices []*deviceUse
}

// deviceUse sums up what samples said.
type deviceUse struct {
	use       *pb.DeviceUse // totals; UtilPercent is made from the sum
	utilSum   int64
	utilCount int64
	lastAtNS  int64
	lastMJ    int64 // counter at the last sample; NA = not said
	lastMW    int64
	idleNS    int64 // when the present row of idle samples began; 0 = it is not idle
	idleFor   time.Duration
}

// NewRecorder makes one without steps.
func NewRecorder() *Recorder { return &Recorder{steps: map[string]*stepUse{}} }

// Begin starts to record a step, by any key, with the devices it holds on this node. prior is what an earlier daemon recorded of
// it, nil for a new step. A step that has begun already goes on.
func (r *Recorder) Begin(key string, devices []*pb.GresDevice, prior []*pb.DeviceUse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps[key] != nil {
		return
	}
	s := &stepUse{}
	for _, d := range devices {
		if d.GetId() == "" || slices.ContainsFunc(s.devices, func(o *deviceUse) bool { return o.use.Id == d.Id }) {
			continue // of no identity, or several shares of one
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

// Add takes in samples, in the order of their time.
func (r *Recorder) Add(samples []*pb.DeviceSample) {
	r.each(samples, func(_ string, d *deviceUse, s *pb.DeviceSample) {
		d.load(s)
		d.memory(s)
		d.count(s)
	})
}

// First takes in the samples with which steps begin.
func (r *Recorder) First(samples []*pb.DeviceSample) {
	r.each(samples, func(_ string, d *deviceUse, s *pb.DeviceSample) {
		if d.lastAtNS == 0 {
			d.count(s)
		}
	})
}

// Last takes in the samples with which a step ends.
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

// each calls add for each device that a step has and a later sample is of.
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

// Fewer are the devices of steps that have fewer samples than n, or none since this daemon began.
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

// count ends the work on a sample.
func (d *deviceUse) count(s *pb.DeviceSample) {
	d.use.Samples++
	d.energy(s)
	d.lastAtNS, d.lastMJ, d.lastMW = s.AtNs, s.EnergyMj, s.PowerMw
}

// energy adds what was used since the last sample.
func (d *deviceUse) energy(s *pb.DeviceSample) {
	var more int64
	switch {
	case d.lastAtNS == 0:
		if s.EnergyMj < 0 && s.PowerMw < 0 {
			return
		}
	case s.EnergyMj >= 0 && d.lastMJ >= 0:
		more = s.EnergyMj - d.lastMJ
		if more < 0 { // the counter began anew
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
		d.idleNS = s.AtNs - int64(d.idleFor) // an earlier daemon's row goes on
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

// Devices are those of a step, by their ids.
func (r *Recorder) Devices(key string) (ids []string) {
	for _, u := range r.Use(key) {
		ids = append(ids, u.Id)
	}
	return ids
}

// Use is what a step has used so far, in the order of its devices; nil for a step that has not begun.
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

// End is the last Use of a step, which is forgotten.
func (r *Recorder) End(key string) []*pb.DeviceUse {
	out := r.Use(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.steps, key)
	return out
}
