package sched

import (
	"fmt"
	"testing"
)

// TestCoresNearDevices: cores near the GPU come first, whether cores or CPUs are given, and GPUs of a socket are found by them.
func TestCoresNearDevices(t *testing.T) {
	for _, whole := range []bool{false, true} {
		w := newWorld(t, Params{WholeCores: whole}, 1, 16)
		n := w.in.Nodes[0]
		n.Sockets, n.CoresPerSocket, n.Threads = 2, 4, 2
		n.Gres = []Gres{
			{Name: "gpu", Type: "a", Count: 2, Devices: []Device{{Index: 0, Cores: Bits{0b00001100}}, {Index: 1, Cores: Bits{0b11000000}}}},
		}
		w.add(1, 100, Request{Tasks: 1, CPUsPerTask: 2, Gres: []GresRequest{{Name: "gpu", Count: 1}}})
		w.add(2, 100, Request{Tasks: 1, CPUsPerTask: 4, Gres: []GresRequest{{Name: "gpu", Count: 1}}, Binding: true})
		w.plan()
		want := "[2] [6 7]"
		if !whole { // CPUs 2k and 2k+1 are core k
			want = "[4 5] [12 13 14 15]"
		}
		if len(w.in.Running) != 2 {
			t.Fatalf("whole cores %v: %d jobs run", whole, len(w.in.Running))
		}
		if got := fmt.Sprint(w.in.Running[0].Allocs[0].Cores.List(), w.in.Running[1].Allocs[0].Cores.List()); got != want {
			t.Errorf("whole cores %v: %s, want %s", whole, got, want)
		}
	}
}

// TestGroupsOfUnequalShares: GPUs of one type that are worth different numbers of shares are one pool for whole GPUs, and each is shared
// as far as it goes.
func TestGroupsOfUnequalShares(t *testing.T) {
	w := newWorld(t, Params{}, 1, 64)
	w.in.Nodes[0].Gres = []Gres{
		{Name: "gpu", Type: "a", Count: 1, Devices: []Device{{Index: 0}}, Shared: "shard", Shares: 4},
		{Name: "gpu", Type: "a", Count: 1, Devices: []Device{{Index: 1}}, Shared: "shard", Shares: 1},
	}
	w.add(1, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "shard", Count: 3}}})
	w.add(2, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "gpu", Type: "a", Count: 1}}})
	w.add(3, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "shard", Count: 1}}})
	w.add(4, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "gpu", Count: 2}}})
	w.plan()
	if got, want := cutsOf(&w.in), "1:a@0 2:a@1 3:a@0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, id := range []uint32{1, 2, 3} {
		w.end(id)
	}
	w.plan()
	if got, want := cutsOf(&w.in), "4:a@0 4:a@1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWithheldDevices: a job that would fit if all devices were given out waits for them.
func TestWithheldDevices(t *testing.T) {
	w := newWorld(t, Params{}, 2, 4)
	w.in.Nodes[0].Gres, w.in.Nodes[0].Withheld = []Gres{{Name: "gpu", Count: 1, Devices: []Device{{Index: 1}}}}, []string{"gpu"}
	w.add(1, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "gpu", Count: 2}}})
	w.add(2, 100, Request{Tasks: 1, Gres: []GresRequest{{Name: "fpga", Count: 1}}})
	w.want("1: Resources; 2: BadConstraints")
	whole := *w.in.Nodes[0]
	whole.Gres, whole.Withheld = []Gres{{Name: "gpu", Count: 2, Devices: []Device{{Index: 0}, {Index: 1}}}}, nil
	w.in.Nodes = []*Node{&whole, w.in.Nodes[1]}
	w.plan()
	if len(w.in.Running) != 1 {
		t.Error("the job does not start when the device is given out again")
	}
}
