package state

import (
	"errors"
	"fmt"
)

// Check verifies what must hold in every View. It is for tests and simulations; it looks at everything.
func (v *View) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	cpus, mem := map[string]uint32{}, map[string]uint64{}
	cores := map[string]Cores{}
	onNode := map[string]int{}
	count := 0
	for j := range v.Jobs.All() {
		count++
		if j.Id >= v.NextJobID {
			fault("job %d: id not below the next one, %d", j.Id, v.NextJobID)
		}
		if Live(j) && !Active(j) {
			fault("job %d: %s without COMPLETING, but it still holds nodes", j.Id, StateName(j))
		}
		for _, a := range j.Alloc {
			if a.Ended {
				continue
			}
			cpus[a.Node] += a.Cpus
			mem[a.Node] += a.MemMib
			onNode[a.Node]++
			c, err := ParseCores(a.CpuIds)
			if err != nil {
				fault("job %d: %v", j.Id, err)
			}
			if cores[a.Node].Overlaps(c) {
				fault("job %d: cores %s of %s have two owners", j.Id, a.CpuIds, a.Node)
			}
			cores[a.Node] = cores[a.Node].With(c)
		}
	}
	if count != v.Jobs.Len() {
		fault("the job table counts %d but holds %d", v.Jobs.Len(), count)
	}
	for _, n := range v.nodes {
		if n.AllocCpus != cpus[n.Name] || n.AllocMemMib != mem[n.Name] || len(n.Jobs) != onNode[n.Name] {
			fault("node %s: counts %d CPUs, %d MiB, %d jobs; its jobs hold %d, %d, %d", n.Name, n.AllocCpus, n.AllocMemMib, len(n.Jobs), cpus[n.Name], mem[n.Name], onNode[n.Name])
		}
		if n.AllocCpus > n.Cpus {
			fault("node %s: %d CPUs allocated of %d", n.Name, n.AllocCpus, n.Cpus)
		}
		if n.Cores.String() != cores[n.Name].String() {
			fault("node %s: cores %s in use, its jobs hold %s", n.Name, n.Cores, cores[n.Name])
		}
	}
	return errors.Join(faults...)
}
