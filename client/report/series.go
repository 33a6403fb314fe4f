package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

// The states of a GPU, from the bottom of the picture to its top.
const (
	used = iota
	idle
	unsaid
	lost
	asked
	free
	down
	kinds
)

// kind is the name and appearance of a state. Colours are those of Okabe and Ito, which people with any colour vision can
// distinguish; GPUs that jobs waited for are also hatched.
type kind struct {
	name         string
	rune, ascii  rune
	color, hatch string // for the SVG
	ansi         string
	stripe       float64 // width of a stripe of the hatching, out of 6
}

var kindOf = [kinds]kind{
	used:   {"used by jobs", '█', '#', "#0072B2", "", "34", 0},
	idle:   {"held by jobs, idle", '▒', '=', "#F0B43C", "", "33", 0},
	unsaid: {"held, utilization not known", '?', '?', "#8CC8EE", "", "36", 0},
	lost:   {"free, lost to fragmentation", '!', '!', "#F6CDB4", "#C14B00", "31", 2.6},
	asked:  {"free while jobs waited for GPUs", '+', '+', "#E9E9E9", "#7F7F7F", "37", 1.4},
	free:   {"free", '·', '.', "#E9E9E9", "", "2", 0},
	down:   {"down", 'x', 'x', "#3F3F3F", "", "35", 0},
}

// slot is an interval: the mean state of the GPUs in it.
type slot struct {
	start   time.Time
	covered float64 // seconds with data; 0: unknown
	gpus    [kinds]float64
	waiting float64 // GPUs requested by waiting jobs
}

func (s *slot) total() (sum float64) {
	for _, v := range s.gpus {
		sum += v
	}
	return sum
}

// series is the data of the chart: all hours of a period.
type series struct {
	cluster, partition string
	since, until       time.Time
	slots              []slot // one per hour, starting with the hour of since
}

// seriesOf arranges the hours of an answer.
func seriesOf(r *msg.ReportReply, since, until time.Time) *series {
	s := &series{since: since, until: until}
	first := since.Unix() / 3600
	n := (until.Unix()+3599)/3600 - first
	s.slots = make([]slot, max(n, 1))
	for i := range s.slots {
		s.slots[i].start = time.Unix((first+int64(i))*3600, 0).In(since.Location())
	}
	for _, h := range r.GetHours() {
		at := h.GetStartNs()/3600e9 - first
		if at < 0 || at >= int64(len(s.slots)) || h.GetCoveredS() <= 0 {
			continue
		}
		x := &s.slots[at]
		x.covered = h.GetCoveredS()
		x.waiting = h.GetWaitingS() / x.covered
		for i, v := range [kinds]float64{h.GetUsedS(), h.GetIdleS(), h.GetUnknownS(), h.GetLostS(), h.GetAskedS() - h.GetLostS(),
			h.GetFreeS() - h.GetAskedS(), h.GetDownS()} {
			x.gpus[i] = max(0, v) / x.covered
		}
	}
	return s
}

// merged returns at most most slots, each of the same number of hours.
func (s *series) merged(most int) (list []slot, hours int) {
	hours = (len(s.slots) + most - 1) / most
	for from := 0; from < len(s.slots); from += hours {
		m := slot{start: s.slots[from].start}
		for _, x := range s.slots[from:min(from+hours, len(s.slots))] {
			m.covered += x.covered
			m.waiting += x.waiting * x.covered
			for i := range x.gpus {
				m.gpus[i] += x.gpus[i] * x.covered
			}
		}
		if m.covered > 0 {
			m.waiting /= m.covered
			for i := range m.gpus {
				m.gpus[i] /= m.covered
			}
		}
		list = append(list, m)
	}
	return list, hours
}

// sums returns GPU-hours of each kind over all hours with data, and the number of hours without.
func (s *series) sums() (gpuHours [kinds]float64, all, gap float64) {
	for i := range s.slots {
		x := &s.slots[i]
		from, to := x.start, x.start.Add(time.Hour)
		if from.Before(s.since) {
			from = s.since
		}
		if to.After(s.until) {
			to = s.until
		}
		gap += max(0, to.Sub(from).Seconds()-x.covered) / 3600
		for k, v := range x.gpus {
			gpuHours[k] += v * x.covered / 3600
			all += v * x.covered / 3600
		}
	}
	return gpuHours, all, gap
}

// what says whose GPUs these are.
func (s *series) what() string {
	switch {
	case s.partition != "":
		return "GPUs of partition " + format.Escape(s.partition)
	case s.cluster != "":
		return "GPUs of " + format.Escape(s.cluster)
	}
	return "GPUs"
}

// summary describes all GPUs in a line: "1344 GPU-hours: 61% used by jobs, 12% held by jobs, idle, …".
func (s *series) summary() string {
	sums, all, gap := s.sums()
	if all == 0 {
		return "no records for this period"
	}
	var parts []string
	for k, v := range sums {
		if v/all >= 0.0005 {
			name := strings.Replace(kindOf[k].name, "held by jobs, idle", "held idle", 1)
			parts = append(parts, fmt.Sprintf("%.1f%% %s", 100*v/all, name))
		}
	}
	text := fmt.Sprintf("%.1f GPU-hours: %s", all, strings.Join(parts, "; "))
	if gap >= 0.05 {
		text += fmt.Sprintf("; %.1f h not recorded", gap)
	}
	return text
}

func (s *series) appendSummary(b []byte) []byte {
	return append(append(append(append(b, '\n'), s.what()+", "...), s.summary()...), '\n')
}
