package state

import (
	"errors"
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Check verifies the invariants of a View. It is for tests and simulations; it reads everything.
func (v *View) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	cpus, mem := map[string]uint32{}, map[string]uint64{}
	planned := map[string]float64{} // CPUs given to jobs that were never suspended; of shared CPUs, each job's part
	held := map[string]Held{}
	owners := coreOwners{}
	devices := deviceOwners{}
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
		if j.StateFlags&pb.JobConfiguring != 0 && (!Live(j) || j.StopReason != "") {
			fault("job %d: CONFIGURING, but it holds no nodes, or is being stopped (%s)", j.Id, j.StopReason)
		}
		for _, a := range j.Alloc {
			if a.Ended {
				continue
			}
			mem[a.Node] += a.MemMib
			if err := devices.add(v, j.Id, a); err != nil {
				fault("%w", err)
			}
			onNode[a.Node]++
			c, err := ParseCores(a.CpuIds)
			if err != nil {
				fault("job %d: %v", j.Id, err)
			}
			if a.CpusFree {
				continue
			}
			cpus[a.Node] += a.Cpus
			if j.SuspendNs == 0 { // a resumed job got its CPUs back although others may have taken them
				planned[a.Node] += float64(a.Cpus) / float64(max(a.Shared, 1))
			}
			held[a.Node] = held[a.Node].With(c)
			if err := owners.add(j, a, c); err != nil {
				fault("%w", err)
			}
		}
	}
	if count != v.Jobs.Len() {
		fault("the job table counts %d but holds %d", v.Jobs.Len(), count)
	}
	for _, n := range v.nodes {
		if n.HeldCPUs != cpus[n.Name] || n.AllocMemMib != mem[n.Name] || len(n.Jobs) != onNode[n.Name] {
			fault("node %s: counts %d CPUs, %d MiB, %d jobs; its jobs hold %d, %d, %d", n.Name, n.HeldCPUs, n.AllocMemMib, len(n.Jobs),
				cpus[n.Name], mem[n.Name], onNode[n.Name])
		}
		if n.AllocCpus > n.Cpus {
			fault("node %s: %d CPUs allocated of %d", n.Name, n.AllocCpus, n.Cpus)
		}
		if p := planned[n.Name]; p > float64(n.Cpus)+0.001 {
			fault("node %s: jobs were given %.3g CPUs of %d", n.Name, p, n.Cpus)
		}
		if len(n.Held) != len(held[n.Name]) || n.Held.InUse().String() != held[n.Name].InUse().String() {
			fault("node %s: cores %s in use, %d deep; its jobs hold %s, %d deep", n.Name, n.Held.InUse(), len(n.Held),
				held[n.Name].InUse(), len(held[n.Name]))
		}
	}
	faults = append(faults, v.checkSteps()...)
	faults = append(faults, v.checkPolicy()...)
	faults = append(faults, v.checkUsage()...)
	faults = append(faults, v.checkTime()...)
	return errors.Join(faults...)
}

// coreOwners lists the shares that have a core, by node and core.
type coreOwners map[string]map[int][]coreOwner

type coreOwner struct {
	job       *pb.JobRecord
	shared    uint32
	suspended bool // was suspended once, so others may have taken its CPUs
}

// add records a share and returns a fault if its cores are shared wrongly: all sharers must be in one partition, and all must allow that
// many.
func (o coreOwners) add(j *pb.JobRecord, a *pb.NodeAlloc, cores Cores) error {
	if o[a.Node] == nil {
		o[a.Node] = map[int][]coreOwner{}
	}
	me := coreOwner{j, max(a.Shared, 1), j.SuspendNs != 0}
	var err error
	for k := range cores.All() {
		list := append(o[a.Node][k], me)
		o[a.Node][k] = list
		together := 0 // sharers by plan; resumed jobs come on top
		for _, x := range list {
			if !x.suspended {
				together++
			}
		}
		for _, other := range list[:len(list)-1] {
			if other.suspended || me.suspended {
				continue
			}
			if other.job.Partition != j.Partition || together > int(min(me.shared, other.shared)) {
				err = fmt.Errorf(
					"core %d of %s has %d owners, among them job %d of partition %s (shared by %d) and job %d of partition %s "+
						"(shared by %d)",
					k, a.Node, len(list), other.job.Id, other.job.Partition, other.shared, j.Id, j.Partition, me.shared)
			}
		}
	}
	return err
}
