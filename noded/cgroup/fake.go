package cgroup

import (
	"fmt"
	"os"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Fake is a Root for tests without privileges. Groups are process trees, names are remembered, and any call can be made to fail.
type Fake struct {
	mu        sync.Mutex
	Made      []string
	Limits    map[string]*pb.Limits
	Removed   []string
	Reclaimed []string
	Fail      func(op, name string) error // may be nil
	NoDevices error
}

func (f *Fake) Layout() Layout    { return Tree }
func (f *Fake) Notes() []string   { return nil }
func (f *Fake) Devices() error    { return f.NoDevices }
func (f *Fake) Shelter(int) error { return nil }
func (f *Fake) Tidy()             {}

func (f *Fake) fail(op, name string) error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(op, name)
}

// Create refuses a name that was used before, like the real one.
func (f *Fake) Create(name string, l *pb.Limits) (Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail("create", name); err != nil {
		return nil, err
	}
	if _, used := f.Limits[name]; used {
		return nil, fmt.Errorf("cannot make cgroup %s: %w", name, ErrExists)
	}
	if f.Limits == nil {
		f.Limits = map[string]*pb.Limits{}
	}
	f.Limits[name] = l
	f.Made = append(f.Made, name)
	return &fakeGroup{treeGroup{os.Getpid()}, f, name}, nil
}

// Reclaim records the name.
func (f *Fake) Reclaim(b *pb.Bundle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Reclaimed = append(f.Reclaimed, b.Cgroup)
	return f.fail("reclaim", b.Cgroup)
}

type fakeGroup struct {
	treeGroup
	f    *Fake
	name string
}

func (g *fakeGroup) Remove() error {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	g.f.Removed = append(g.f.Removed, g.name)
	return g.f.fail("remove", g.name)
}
