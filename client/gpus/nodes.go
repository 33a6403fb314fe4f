package gpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// nodeRows returns a line per node: sums of memory and power, mean utilization, highest temperature, and the states, users and
// notes of its GPUs.
func nodeRows(list []*msg.GpuRecord, nowNS int64) [][]string {
	rows := [][]string{{"NODE", "GPUS", "TYPE", "MEMORY", "UTIL", "TEMP", "POWER", "STATE", "USER", "NOTE"}}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].GetNode() == list[0].GetNode() {
			n++
		}
		rows = append(rows, nodeRow(list[:n], nowNS))
		list = list[n:]
	}
	return rows
}

// sum adds up the known values of a node's GPUs.
type sum struct{ total, known, most int64 }

func (s *sum) add(sample *msg.DeviceSample, v int64) {
	if sample != nil && v >= 0 {
		s.total, s.known, s.most = s.total+v, s.known+1, max(s.most, v)
	}
}

func (s *sum) text(v int64, unit string) string {
	if s.known == 0 {
		return "n/a"
	}
	return strconv.FormatInt(v, 10) + unit
}

func nodeRow(list []*msg.GpuRecord, nowNS int64) []string {
	var memory, util, heat, power sum
	var size uint64
	var types, users, notes []string
	states := map[string]int{}
	count := 0
	for _, g := range list {
		for _, o := range g.GetOwners() {
			users = appendNew(users, o.GetUser())
		}
		if note := gpuNote(g, nowNS); note != "" {
			notes = append(notes, fmt.Sprintf("%d: %s", g.GetDevice().GetIndex(), note))
		}
		if part := g.GetDevice().GetParent(); part != "" && slices.ContainsFunc(list, func(w *msg.GpuRecord) bool {
			return w.GetDevice().GetId() == part
		}) {
			continue // a part of a GPU that is counted
		}
		count++
		s := g.GetSample()
		memory.add(s, s.GetMemoryUsedMib())
		util.add(s, s.GetUtilPercent())
		heat.add(s, s.GetTemperatureC())
		power.add(s, s.GetPowerMw())
		size += g.GetDevice().GetMemoryMib()
		states[g.GetState()]++
		types = appendNew(types, g.GetDevice().GetType())
	}
	used := "n/a"
	if memory.known > 0 {
		used = gib(uint64(memory.total))
	}
	if size > 0 {
		used += "/" + gib(size) + "G"
	}
	return []string{list[0].GetNode(), strconv.Itoa(count), dash(strings.Join(types, ",")), used,
		util.text(util.total/max(util.known, 1), "%"), heat.text(heat.most, "C"), power.text(power.total/1000, "W"), tally(states),
		dash(strings.Join(users, ",")), strings.Join(notes, "; ")}
}

func appendNew(list []string, word string) []string {
	if word == "" || slices.Contains(list, word) {
		return list
	}
	return append(list, word)
}
