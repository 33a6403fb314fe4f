package gpu

import (
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func sample(id string, second int, util, mem, mw, mj int64) *pb.DeviceSample {
	return &pb.DeviceSample{Id: id, AtNs: epoch.Add(time.Duration(second) * time.Second).UnixNano(), UtilPercent: util, MemoryUsedMib: mem,
		PowerMw: mw, EnergyMj: mj}
}

func TestRecorder(t *testing.T) {
	held := []*pb.GresDevice{{Id: "a", Index: 3, Type: "a100"}, {Id: "b"}, {Id: "a"}, {Name: "bandwidth", Count: 7}}
	r := NewRecorder()
	r.Begin("1.0", held, nil)
	for s, util := range []int64{0, 80, 100, 0, 0, 0} {
		r.Add([]*pb.DeviceSample{sample("a", 10*s, util, 100*util, 1000, int64(5000+s*700)), sample("b", 10*s, NA, NA, 2000, NA),
			sample("other", 10*s, 5, 5, 5, 5)})
	}
	r.Add([]*pb.DeviceSample{sample("a", 50, 99, 99, 99, 99)}) // one that was seen already
	want := []*pb.DeviceUse{
		{Id: "a", Index: 3, Type: "a100", UtilPercent: 30, MaxUtilPercent: 100, MemoryMib: 0, MaxMemoryMib: 10000, EnergyMj: 3500,
			IdleS: 20, Samples: 6},
		{Id: "b", UtilPercent: NA, MaxUtilPercent: NA, MemoryMib: NA, MaxMemoryMib: NA, EnergyMj: 100_000, Samples: 6},
	}
	check := func(got []*pb.DeviceUse) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%v", got)
		}
		for i := range got {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("%v\nwant %v", got[i], want[i])
			}
		}
	}
	check(r.Use("1.0"))
	prior := r.End("1.0")
	check(prior)
	if r.Use("1.0") != nil {
		t.Error("it is known still")
	}
	// The next daemon goes on; the time between is not counted.
	r = NewRecorder()
	r.Begin("1.0", held, prior)
	check(r.Use("1.0"))
	r.Add([]*pb.DeviceSample{sample("a", 100, 0, 50, 1000, 100_000)})
	r.Add([]*pb.DeviceSample{sample("a", 110, 0, 50, 1000, 100_001)})
	a := r.Use("1.0")[0]
	if a.IdleS != 30 || a.EnergyMj != 3501 || a.Samples != 8 || a.UtilPercent != 23 || a.MaxMemoryMib != 10000 {
		t.Errorf("%v", a)
	}
	r.Add([]*pb.DeviceSample{sample("a", 120, 0, 50, 1000, 7)}) // the driver was loaded anew
	if a := r.Use("1.0")[0]; a.EnergyMj != 3508 {
		t.Errorf("%v", a)
	}
}

// TestFirstAndLastSample: the first counts for energy alone, the last not for memory.
func TestFirstAndLastSample(t *testing.T) {
	r := NewRecorder()
	for _, key := range []string{"1.0", "2.0"} {
		r.Begin(key, []*pb.GresDevice{{Id: "a"}}, nil)
	}
	r.First([]*pb.DeviceSample{sample("a", 0, 100, 70, 1000, 1000)})
	r.First([]*pb.DeviceSample{sample("a", 1, 100, 70, 1000, 2000)}) // of a third step
	r.Add([]*pb.DeviceSample{sample("a", 2, 20, 50, 1000, 3000)})
	r.Last("1.0", []*pb.DeviceSample{sample("a", 3, 40, 0, 1000, 4000)})
	for key, want := range map[string]*pb.DeviceUse{
		"1.0": {Id: "a", UtilPercent: 30, MaxUtilPercent: 40, MemoryMib: 50, MaxMemoryMib: 50, EnergyMj: 3000, Samples: 3},
		"2.0": {Id: "a", UtilPercent: 20, MaxUtilPercent: 20, MemoryMib: 50, MaxMemoryMib: 50, EnergyMj: 2000, Samples: 2},
	} {
		if got := r.End(key)[0]; !proto.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", key, got, want)
		}
	}
}

// Nothing that was not said becomes a number, and a mean lies between what was said.
func TestRecorderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRecorder()
		r.Begin("k", []*pb.GresDevice{{Id: "a"}}, nil)
		figure := rapid.Int64Range(-1, 100)
		lo, hi, said := int64(101), int64(-1), false
		n := rapid.IntRange(0, 30).Draw(t, "samples")
		for i := range n {
			u := figure.Draw(t, "util")
			if u >= 0 {
				lo, hi, said = min(lo, u), max(hi, u), true
			}
			r.Add([]*pb.DeviceSample{sample("a", i, u, figure.Draw(t, "mem"), figure.Draw(t, "power"), NA)})
		}
		got := r.Use("k")[0]
		if said != (got.UtilPercent >= 0) || said && (got.UtilPercent < lo || got.UtilPercent > hi) || got.MaxUtilPercent != hi ||
			int(got.Samples) != n || int(got.IdleS) > max(0, n-1) {
			t.Fatalf("%v; %v %d to %d", got, said, lo, hi)
		}
	})
}
