package hw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPUs bounds lists of processors (the kernel's own limit is 8192).
const maxCPUs = 8192

// CPUSet converts the abstract ids of an allocation ("0-3,6", of a node configured with that many CPUs) to the kernel's numbers
// in the format of cpuset.cpus. Abstract ids count by socket, core, thread, as Slurm's CPU_IDs do. A node configured with as many
// CPUs as it has cores allocates whole cores, with all their threads (slurm.conf(5), CPUs).
//
// It returns "", no pinning, if ids is empty or the node is configured with more CPUs than exist.
func (t Topology) CPUSet(ids string, configured uint32) (string, error) {
	want, err := ParseList(ids)
	if err != nil || len(want) == 0 || int(configured) > len(t) {
		return "", err
	}
	wholeCores := t.cores() != len(t) && int(configured) == t.cores()
	byCore := map[int][]int{}
	var order []int
	for _, c := range t {
		if byCore[c.Core] == nil {
			order = append(order, c.Core)
		}
		byCore[c.Core] = append(byCore[c.Core], c.ID)
	}
	var out []int
	for _, id := range want {
		switch {
		case id >= int(configured):
			return "", fmt.Errorf("cannot pin to CPU %d: the node is configured with %d", id, configured)
		case wholeCores:
			out = append(out, byCore[order[id]]...)
		default:
			out = append(out, t[id].ID)
		}
	}
	return FormatList(out), nil
}

// cores returns the number of cores of the whole machine.
func (t Topology) cores() int {
	seen := map[int]bool{}
	for _, c := range t {
		seen[c.Core] = true
	}
	return len(seen)
}

// ParseList parses "0-3,6", the format of the kernel and NodeAlloc.cpu_ids. The result is sorted and has no duplicates.
func ParseList(s string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || b < a || b >= maxCPUs {
			return nil, fmt.Errorf("cannot read %q in CPU list %q: want numbers below %d and ranges like 0-3", part, s, maxCPUs)
		}
		for ; a <= b; a++ {
			out = append(out, int(a))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// FormatList formats a list for ParseList, with ranges.
func FormatList(ids []int) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}
