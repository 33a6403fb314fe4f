package convert

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Reservation converts a reservation for the scheduler, without later occurrences.
func Reservation(v *state.View, r *pb.ReservationRecord) *record.Reservation {
	has := func(flag string) bool { return slices.Contains(r.Flags, flag) }
	s := &record.Reservation{Name: r.Name, Start: Seconds(r.StartNs), End: CeilSeconds(r.EndNs), Groups: r.GroupIds, Maint: has("MAINT"),
		Overlap: has("OVERLAP"),
		Flex:    has("FLEX"), Magnetic: has("MAGNETIC"), IgnoreJobs: has("IGNORE_JOBS"), MaxStartDelayS: int64(r.MaxStartDelayS)}
	s.Users, s.NotUsers = allowed(r.Users)
	s.Accounts, s.NotAccounts = allowed(r.Accounts)
	if r.Licenses != "" {
		s.Licenses = Licenses(r.Licenses)
	}
	s.Nodes, _ = hostlist.Expand(r.Nodes) // cannot fail: the reactor has read it
	for _, p := range r.Parts {
		cores, _ := state.ParseCores(p.CpuIds)
		s.Parts = append(s.Parts, record.Alloc{Node: p.Node, CPUs: int(p.Cpus), Cores: units(v, p.Node, cores),
			Gres: GresAllocs(v.Node(p.Node), p)})
	}
	return s
}

// Seconds converts nanoseconds to the scheduler's seconds; CeilSeconds rounds up, so that nothing begins early.
func Seconds(ns int64) int64     { return ns / 1e9 }
func CeilSeconds(ns int64) int64 { return (ns + 1e9 - 1) / 1e9 }

// units converts cores to allocation units: cores, or their threads (SelectTypeParameters=CR_CPU).
func units(v *state.View, node string, cores state.Cores) record.Bits {
	n := v.Node(node)
	if n == nil || v.Settings.WholeCores || n.Threads < 2 || n.Sockets*n.NodeRecord.Cores*n.Threads != n.Cpus {
		return record.Bits(cores)
	}
	var out record.Bits
	for k := range cores.All() {
		for t := range int(n.Threads) {
			out = out.Set(k*int(n.Threads) + t)
		}
	}
	return out
}

// allowed splits a list of names: those who may, and ("-name") those who may not.
func allowed(list string) (may, not []string) {
	for _, name := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' }) {
		if bare, denied := strings.CutPrefix(name, "-"); denied {
			not = append(not, bare)
		} else {
			may = append(may, name)
		}
	}
	return may, not
}
