package gpu

import (
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

var epoch = time.Unix(1_700_000_000, 0)

func TestCondition(t *testing.T) {
	type look struct {
		afterS int
		o      Observation
		want   string
	}
	ok := Observation{}
	ecc := func(n int64) Observation { return Observation{Health: Health{Uncorrectable: n}} }
	for name, looks := range map[string][]look{
		"healthy": {{0, ok, ""}, {10, ok, ""}},
		"an XID passes": {{0, Observation{XID: 79}, "XID 79 (the GPU has fallen off the bus)"},
			{99, ok, "XID 79 (the GPU has fallen off the bus)"}, {1, ok, ""}},
		"again before it has recovered": {{0, Observation{XID: 48}, "XID 48 (double bit ECC error)"},
			{60, Observation{XID: 48}, "XID 48 (double bit ECC error)"},
			{60, ok, "XID 48 (double bit ECC error)"}, {40, ok, ""}},
		"two faults": {{0, Observation{XID: 74}, "XID 74 (NVLink error)"},
			{1, Observation{Lost: true}, "XID 74 (NVLink error); fallen off the bus"}},
		"lost for long": {{0, Observation{Lost: true}, "fallen off the bus"}, {500, Observation{Lost: true}, "fallen off the bus"},
			{99, ok, "fallen off the bus"}, {1, ok, ""}},
		"errors grow": {{0, ecc(0), ""}, {10, ecc(1), "1 uncorrectable ECC error"}, {10, ecc(3), "3 uncorrectable ECC errors"},
			{50, ecc(3), "3 uncorrectable ECC errors"},
			{50, ecc(3), ""}, {10, ecc(3), ""}, {10, ecc(4), "4 uncorrectable ECC errors"}},
		"errors from before":   {{0, ecc(2), "2 uncorrectable ECC errors"}, {100, ecc(2), ""}},
		"a driver loaded anew": {{0, ecc(2), "2 uncorrectable ECC errors"}, {100, ecc(0), ""}, {1, ecc(1), "1 uncorrectable ECC error"}},
		"not counted":          {{0, ecc(NA), ""}, {10, ecc(NA), ""}},
		"remapping failed": {{0, Observation{Health: Health{Broken: RemapFailed}}, RemapFailed},
			{1000, Observation{Health: Health{Broken: RemapFailed}}, RemapFailed}},
		"an unknown XID": {{0, Observation{XID: 999}, "XID 999"}},
	} {
		var c Condition
		now := epoch
		for i, l := range looks {
			now = now.Add(time.Duration(l.afterS) * time.Second)
			c = c.See(l.o, now, 100*time.Second)
			if c.Fault != l.want {
				t.Errorf("%s, look %d: %q, want %q", name, i, c.Fault, l.want)
			}
			if (c.Fault == "") != c.Since.IsZero() {
				t.Errorf("%s, look %d: since %v", name, i, c.Since)
			}
		}
	}
}

// A fault begins with something bad and at once; it ends only after the whole time without anything bad; so for each end there
// was at least that time, and a GPU cannot flap faster.
func TestConditionDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recover := time.Duration(rapid.IntRange(1, 100).Draw(t, "recover")) * time.Second
		var c Condition
		now, lastBad, ecc := epoch, epoch.Add(-time.Hour), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "seconds")) * time.Second)
			var o Observation
			bad := true
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				o.Lost = true
			case 1:
				o.XID = 79
			case 2:
				ecc++
			case 3:
				o.Health.Broken = RemapFailed
			default:
				bad = false
			}
			o.Health.Uncorrectable = ecc
			if ecc > c.ECC {
				bad = true
			}
			was := c.Fault
			c = c.See(o, now, recover)
			if bad {
				lastBad = now
			}
			switch {
			case bad && c.Fault == "":
				t.Fatal("something bad is no fault")
			case was != "" && c.Fault == "" && now.Sub(lastBad) < recover:
				t.Fatalf("healthy again after %v", now.Sub(lastBad))
			case was != "" && !bad && now.Sub(lastBad) >= recover && c.Fault != "":
				t.Fatalf("still %q after %v", c.Fault, now.Sub(lastBad))
			case was == "" && !bad && c.Fault != "":
				t.Fatalf("%q for nothing", c.Fault)
			}
		}
	})
}

func TestXIDPolicy(t *testing.T) {
	for _, c := range []struct {
		p    *pb.GpuPolicy
		xid  uint64
		want bool
	}{{nil, 31, true}, {nil, 79, false}, {&pb.GpuPolicy{SampleS: 10}, 31, false}, {&pb.GpuPolicy{IgnoreXids: []uint32{79}}, 79, true},
		{&pb.GpuPolicy{IgnoreXids: []uint32{79}}, 31, false}} {
		if got := ignoresXID(c.p, c.xid); got != c.want {
			t.Errorf("%v, XID %d: %v", c.p, c.xid, got)
		}
	}
}
