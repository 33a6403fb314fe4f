package cgroup

import (
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds a list: Linux supports no more, and a range must not grow it without limit.
const maxCPU = 8192

// parseList reads the kernel's list format ("0-3,8"); ok is false when it is malformed.
func parseList(s string) (cpus []int, ok bool) {
	if s == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= maxCPU {
			return nil, false
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), true
}

func formatList(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}

// intersect returns the CPUs of want that exist; empty (no restriction) if none does or a list is malformed.
func intersect(want, have string) string {
	w, ok1 := parseList(want)
	h, ok2 := parseList(have)
	if !ok1 || !ok2 {
		return ""
	}
	w = slices.DeleteFunc(w, func(c int) bool {
		_, found := slices.BinarySearch(h, c)
		return !found
	})
	return formatList(w)
}
