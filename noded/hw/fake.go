package hw

// Fake is a Prober for tests and for simulated machines.
type Fake struct {
	Inv  Inventory
	Now  Load
	Fail error
}

// Inventory implements Prober.
func (f *Fake) Inventory() (Inventory, error) { return f.Inv, f.Fail }

// Load implements Prober.
func (f *Fake) Load() (Load, error) { return f.Now, f.Fail }

// Build returns a regular machine whose threads are numbered as in Linux: first one thread of every core, then the second ones.
func Build(sockets, cores, threads int) Topology {
	t := make(Topology, 0, sockets*cores*threads)
	for s := range sockets {
		for c := range cores {
			for th := range threads {
				core := s*cores + c
				t = append(t, CPU{ID: th*sockets*cores + core, Socket: s, Core: core, Thread: th})
			}
		}
	}
	return t
}
