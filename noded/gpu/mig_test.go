package gpu

import (
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

var dynamic = &pb.GpuPolicy{DynamicMig: true}

func (r *rig) instance(step, profile string, start uint32) *pb.Device {
	r.t.Helper()
	d, err := r.EnsureInstance(step, r.fake.ID(0), profile, start)
	if err != nil {
		r.t.Fatalf("%s: %v", profile, err)
	}
	return d
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestEnsureInstance(t *testing.T) {
	r := newRig(t, "a100:1:mig,a100:1", dynamic)
	d := r.instance("1", "a100_3g.20gb", 4)
	if d.Type != "a100_3g.20gb" || d.Index != 2+4 || d.Parent != r.fake.ID(0) || d.MigStart != 4 || len(d.Files) != 3 ||
		!strings.HasPrefix(d.Id, "MIG-") {
		t.Errorf("%v", d)
	}
	for _, f := range d.Files {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	if again := r.instance("1", "3g.20gb", 4); again.Id != d.Id {
		t.Error("another one")
	}
	_, err := r.EnsureInstance("2", r.fake.ID(0), "3g.20gb", 4)
	refused(t, err, "step 1 has it")
	_, err = r.EnsureInstance("2", r.fake.ID(0), "7g.40gb", 0)
	refused(t, err, "step 1 has it")
	_, err = r.EnsureWhole("2", r.fake.ID(0))
	refused(t, err, "step 1 has it")
	_, err = r.EnsureInstance("2", r.fake.ID(0), "9g.90gb", 0)
	refused(t, err, "it can be cut into 1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb")
	_, err = r.EnsureInstance("2", r.fake.ID(0), "3g.20gb", 2)
	refused(t, err, "no such placement")
	r.instance("2", "2g.10gb", 0)

	r.restart("a100:1:mig,a100:1") // what exists is read from the driver; who holds it is told anew
	r.Hold("1", []string{d.Id})
	if again := r.instance("1", "3g.20gb", 4); again.Id != d.Id {
		t.Error("another one after a restart")
	}
	if n := len(r.Report().Devices); n != 4 {
		t.Errorf("%d devices", n)
	}
	if whole := r.instance("3", "3g.20gb", 0); whole.MigStart != 0 { // the idle 2g.10gb is in its way
		t.Errorf("%v", whole)
	}
	r.Release("1")
	r.Release("3")
	r.after(2 * mergeAfter)
	r.after(2 * mergeAfter)
	if len(r.Report().Devices) != 2 {
		t.Errorf("%s", text(r.Report()))
	}
}

// A GPU that changes its mode at once is given whole; of another the instance that takes all of it is.
func TestEnsureWhole(t *testing.T) {
	for _, c := range []struct{ spec, mode, typ string }{{"a100:1:mig", "on", "a100_7g.40gb"}, {"h100:1:mig", "off", "h100"},
		{"h100:1", "off", "h100"}} {
		r := newRig(t, c.spec, dynamic)
		if c.spec != "h100:1" {
			p := r.device(0).MigProfiles[0].Name
			r.instance("1", p, 2)
			r.Release("1")
		}
		d, err := r.EnsureWhole("2", r.fake.ID(0))
		if err != nil || d.Type != c.typ || r.device(0).MigMode != c.mode {
			t.Errorf("%s: %v, %v, mode %s", c.spec, d, err, r.device(0).MigMode)
		}
		if again, err := r.EnsureWhole("2", r.fake.ID(0)); err != nil || again.Id != d.Id {
			t.Errorf("%s: again %v, %v", c.spec, again, err)
		}
		_, err = r.EnsureInstance("3", r.fake.ID(0), r.device(0).MigProfiles[0].Name, 0)
		refused(t, err, "step 2 has")
	}
}

func TestPendingModeIsSaid(t *testing.T) {
	r := newRig(t, "a100:1", dynamic)
	_, err := r.EnsureInstance("1", r.fake.ID(0), "3g.20gb", 0)
	refused(t, err, "its MIG mode is pending on until the GPU is reset")
	if r.device(0).MigMode != "pending on" {
		t.Errorf("%v", r.device(0))
	}
	h := newRig(t, "h100:1", dynamic)
	h.instance("1", "3g.40gb", 0)
	x := newRig(t, "titan_v:1", dynamic)
	_, err = x.EnsureInstance("1", x.fake.ID(0), "3g.40gb", 0)
	refused(t, err, "it can be cut into nothing")
}

func TestAnAdministratorsInstancesStay(t *testing.T) {
	r := newRig(t, "a100:1:mig", dynamic)
	r.instance("1", "3g.20gb", 0)
	r.Release("1")
	r.Configure(nil, nil)
	r.after(2 * mergeAfter)
	r.after(2 * mergeAfter)
	if len(r.Report().Devices) != 2 {
		t.Errorf("%s", text(r.Report()))
	}
	r.instance("2", "3g.20gb", 0)
	_, err := r.EnsureInstance("3", r.fake.ID(0), "3g.20gb", 4)
	refused(t, err, "gpu_mig=dynamic")
}

func TestIdleInstancesAreMergedBackAfterAWhile(t *testing.T) {
	r := newRig(t, "a100:1:mig", dynamic)
	r.instance("1", "3g.20gb", 0)
	r.after(2 * mergeAfter)
	r.after(2 * mergeAfter)
	if len(r.Report().Devices) != 2 {
		t.Fatal("under a running step")
	}
	r.Release("1")
	r.after(time.Second)
	if len(r.Report().Devices) != 2 {
		t.Error("at once")
	}
	r.fake.Set(0, func(s *FakeState) { s.Busy = true })
	r.after(mergeAfter)
	if len(r.Report().Devices) != 2 {
		t.Error("while it is in use")
	}
	r.fake.Set(0, func(s *FakeState) { s.Busy = false })
	r.after(mergeAfter)
	if len(r.Report().Devices) != 1 {
		t.Errorf("%s", text(r.Report()))
	}
}

// For any sequence of launches, ends, restarts and passing time: no two steps hold the same or overlapping parts of a GPU, and
// what a step holds exists until its end.
func TestNoInstanceHasTwoOwners(t *testing.T) {
	dir := t
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(dir, "h100:1:mig", dynamic)
		own := map[string]*pb.Device{}
		steps := []string{"1", "2", "3", "4"}
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			step := rapid.SampledFrom(steps).Draw(t, "step")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1, 2:
				if own[step] != nil {
					break
				}
				p := rapid.SampledFrom(r.device(0).MigProfiles).Draw(t, "profile")
				d, err := r.EnsureInstance(step, r.fake.ID(0), p.Name, rapid.SampledFrom(p.Starts).Draw(t, "start"))
				if err == nil {
					own[step] = d
				}
			case 3:
				if own[step] == nil {
					if d, err := r.EnsureWhole(step, r.fake.ID(0)); err == nil {
						own[step] = d
					}
				}
			case 4:
				r.Release(step)
				delete(own, step)
			case 5:
				r.after(mergeAfter)
			case 6:
				r.restart("h100:1:mig")
				for s, d := range own {
					r.Hold(s, []string{d.Id})
				}
			}
			slices := [8]string{}
			for s, d := range own {
				there := false
				for _, have := range r.Report().Devices {
					there = there || have.Id == d.Id
				}
				if !there {
					t.Fatalf("step %s lost %v", s, d)
				}
				size, start := uint32(8), d.MigStart
				if d.Parent != "" {
					size = profileNamed(r.device(0).MigProfiles, d.Type).Size
				}
				for k := start; k < start+size; k++ {
					if slices[k] != "" {
						t.Fatalf("slice %d has two owners: %s and %s", k, s, slices[k])
					}
					slices[k] = s
				}
			}
		}
	})
}
