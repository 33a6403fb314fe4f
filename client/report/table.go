package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// userName is the name of a user, or the uid if there is none.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if a, ok := passwd.User(number); ok && a.Name != "" {
		return a.Name
	}
	return number
}

// names returns the columns that identify a row, and their texts.
func (o *options) names() (heads []string, of func(*msg.ReportRow) []string) {
	switch o.request.By {
	case "account":
		return []string{"ACCOUNT"}, func(r *msg.ReportRow) []string { return []string{r.GetAccount()} }
	case "partition":
		return []string{"PARTITION"}, func(r *msg.ReportRow) []string { return []string{r.GetPartition()} }
	case "node":
		return []string{"NODE"}, func(r *msg.ReportRow) []string { return []string{r.GetNode()} }
	}
	return []string{"USER", "ACCOUNT"}, func(r *msg.ReportRow) []string { return []string{userName(r.GetUid()), r.GetAccount()} }
}

// column is a figure of a row; -P prints all of them, in order, with their keys.
type column struct {
	head, key string
	table     func(*msg.ReportRow) string // nil: not in the table
	text      func(*msg.ReportRow) string // for programs; "" = unknown
	jobs      bool                        // for jobs, not for nodes
}

// hours formats seconds as hours.
func hours(s float64) string { return strconv.FormatFloat(s/3600, 'f', 2, 64) }

func exact(s float64) string { return strconv.FormatFloat(s/3600, 'f', 4, 64) }

// percent formats a fraction, or unknown if the whole is 0.
func percent(part, whole float64, unknown string) string {
	if whole <= 0 {
		return unknown
	}
	return strconv.FormatFloat(100*part/whole, 'f', 1, 64)
}

// energy formats joules in a suitable unit.
func energy(j float64) string {
	wh := j / 3600
	switch {
	case wh >= 1e6:
		return fmt.Sprintf("%.2fMWh", wh/1e6)
	case wh >= 1e3:
		return fmt.Sprintf("%.2fkWh", wh/1e3)
	}
	return fmt.Sprintf("%.1fWh", wh)
}

// unknown is the GPU time that was not measured.
func unknown(r *msg.ReportRow) float64 { return max(0, r.GetGpuS()-r.GetGpuUsedS()-r.GetGpuIdleS()) }

// waits reports whether jobs of the row have started or are waiting.
func waits(r *msg.ReportRow) bool { return r.GetStarted() > 0 || r.GetWaitP90S() > 0 }

func wait(r *msg.ReportRow, s float64) string {
	if !waits(r) {
		return "-"
	}
	return timespec.Clock(int64(s))
}

func amount(head, key string, jobs bool, of func(*msg.ReportRow) float64) column {
	return column{head, key, func(r *msg.ReportRow) string { return hours(of(r)) },
		func(r *msg.ReportRow) string { return exact(of(r)) }, jobs}
}

func columns() []column {
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	secs := func(r *msg.ReportRow, s float64) string {
		if !waits(r) {
			return ""
		}
		return strconv.FormatFloat(s, 'f', 0, 64)
	}
	return []column{
		{"JOBS", "Jobs", func(r *msg.ReportRow) string { return count(r.GetJobs()) },
			func(r *msg.ReportRow) string { return count(r.GetJobs()) }, false},
		amount("GPU-H", "GPUHours", false, (*msg.ReportRow).GetGpuS),
		amount("USED", "GPUHoursUsed", false, (*msg.ReportRow).GetGpuUsedS),
		amount("IDLE", "GPUHoursIdle", false, (*msg.ReportRow).GetGpuIdleS),
		amount("N/A", "GPUHoursUnknown", false, unknown),
		amount("LOST", "GPUHoursLost", true, (*msg.ReportRow).GetGpuLostS),
		{"", "GPUHoursLostBeside", nil, func(r *msg.ReportRow) string { return exact(r.GetGpuLostBesideS()) }, true},
		amount("WAITED", "GPUHoursWaited", true, (*msg.ReportRow).GetGpuWaitedS),
		{"", "Started", nil, func(r *msg.ReportRow) string { return count(r.GetStarted()) }, true},
		{"WAIT50", "WaitMedianSec", func(r *msg.ReportRow) string { return wait(r, r.GetWaitMedianS()) },
			func(r *msg.ReportRow) string { return secs(r, r.GetWaitMedianS()) }, true},
		{"WAIT90", "WaitP90Sec", func(r *msg.ReportRow) string { return wait(r, r.GetWaitP90S()) },
			func(r *msg.ReportRow) string { return secs(r, r.GetWaitP90S()) }, true},
		amount("CPU-H", "CPUHours", false, (*msg.ReportRow).GetCpuS),
		{"CPU%", "CPUEfficiency", func(r *msg.ReportRow) string { return percent(r.GetCpuUsedS(), r.GetCpuKnownS(), "n/a") },
			func(r *msg.ReportRow) string { return percent(r.GetCpuUsedS(), r.GetCpuKnownS(), "") }, false},
		{"MEM%", "MemEfficiency", func(r *msg.ReportRow) string { return percent(r.GetMemUsedS(), r.GetMemKnownS(), "n/a") },
			func(r *msg.ReportRow) string { return percent(r.GetMemUsedS(), r.GetMemKnownS(), "") }, false},
		{"ENERGY", "EnergyJ", func(r *msg.ReportRow) string {
			if r.GetEnergyGpuS() == 0 {
				return "n/a"
			}
			return energy(r.GetEnergyJ())
		}, func(r *msg.ReportRow) string {
			if r.GetEnergyGpuS() == 0 {
				return ""
			}
			return strconv.FormatFloat(r.GetEnergyJ(), 'f', 0, 64)
		}, false},
	}
}

// shown returns the columns of the report.
func (o *options) shown(parsable bool) (list []column) {
	for _, c := range columns() {
		if (parsable || c.table != nil) && !(c.jobs && o.request.By == "node") {
			list = append(list, c)
		}
	}
	return list
}

func (o *options) appendParsable(b []byte, r *msg.ReportReply) []byte {
	heads, of := o.names()
	list := o.shown(true)
	line := func(words []string) {
		for i := range words {
			words[i] = strings.ReplaceAll(format.Escape(words[i]), "|", "\\174")
		}
		b = append(append(b, strings.Join(words, "|")...), '\n')
	}
	if !o.noHeader {
		words := make([]string, len(heads))
		for i, h := range heads {
			words[i] = h[:1] + strings.ToLower(h[1:])
		}
		for _, c := range list {
			words = append(words, c.key)
		}
		line(words)
	}
	for _, row := range r.GetRows() {
		words := of(row)
		for _, c := range list {
			words = append(words, c.text(row))
		}
		line(words)
	}
	return b
}

// appendTable writes the rows with aligned columns, names left-aligned, and a total.
func (o *options) appendTable(b []byte, r *msg.ReportReply) []byte {
	heads, of := o.names()
	list := o.shown(false)
	var rows [][]string
	if !o.noHeader {
		b = fmt.Appendf(b, "Resources used by jobs from %s to %s "+
			"(%s)\n\n", o.since.Format(timespec.Layout), o.until.Format(timespec.Layout),
			length(o.until.Sub(o.since)))
		first := append([]string{}, heads...)
		for _, c := range list {
			first = append(first, c.head)
		}
		rows = append(rows, first)
	}
	total := &msg.ReportRow{}
	for _, row := range r.GetRows() {
		add(total, row)
		words := of(row)
		for _, c := range list {
			words = append(words, c.table(row))
		}
		rows = append(rows, words)
	}
	if !o.noHeader && len(r.GetRows()) > 1 {
		words := make([]string, len(heads))
		words[0] = "all"
		for _, c := range list {
			if c.head == "JOBS" && o.request.By == "node" {
				words = append(words, "") // a job on two nodes is still one
				continue
			}
			words = append(words, c.table(total))
		}
		rows = append(rows, words)
	}
	return appendAligned(b, rows, len(heads))
}

// add sums up rows; waiting times cannot be added.
func add(total, r *msg.ReportRow) {
	total.Jobs += r.GetJobs()
	for _, f := range []struct {
		to   *float64
		from float64
	}{{&total.GpuS, r.GetGpuS()}, {&total.GpuUsedS, r.GetGpuUsedS()}, {&total.GpuIdleS, r.GetGpuIdleS()},
		{&total.GpuLostS, r.GetGpuLostS()}, {&total.GpuWaitedS, r.GetGpuWaitedS()},
		{&total.CpuS, r.GetCpuS()}, {&total.CpuKnownS, r.GetCpuKnownS()},

		{&total.CpuUsedS, r.GetCpuUsedS()}, {&total.MemKnownS, r.GetMemKnownS()}, {&total.MemUsedS, r.GetMemUsedS()},
		{&total.EnergyJ, r.GetEnergyJ()}, {&total.EnergyGpuS, r.GetEnergyGpuS()}} {
		*f.to += f.from
	}
}

func appendAligned(b []byte, rows [][]string, left int) []byte {
	size := map[int]int{}
	for _, row := range rows {
		for i := range row {
			row[i] = format.Escape(row[i])
			size[i] = max(size[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", size[i]-utf8.RuneCountInString(cell))
			if i < left {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		b = append(append(b, strings.TrimRight(line, " ")...), '\n')
	}
	return b
}

// length describes a duration in words.
func length(d time.Duration) string {
	switch h := d.Hours(); {
	case h >= 48:
		return strings.TrimSuffix(strconv.FormatFloat(h/24, 'f', 1, 64), ".0") + " days"
	case h >= 2:
		return strings.TrimSuffix(strconv.FormatFloat(h, 'f', 1, 64), ".0") + " hours"
	}
	return strconv.FormatFloat(d.Minutes(), 'f', 0, 64) + " minutes"
}

// writeJSON writes rows and hours with all figures, in seconds; figures that were not measured are null.
func writeJSON(out io.Writer, r *msg.ReportReply) error {
	w := jsonout.New(out, false, false)
	w.Int("start", r.GetSinceNs()/1e9)
	w.Int("end", r.GetUntilNs()/1e9)
	w.List("rows")
	for _, row := range r.GetRows() {
		rowJSON(w, row)
	}
	w.End()
	w.List("hours")
	for _, h := range r.GetHours() {
		w.Object("")
		w.Int("start", h.GetStartNs()/1e9)
		for _, f := range hourFigures(h) {
			w.Float(f.name, f.value)
		}
		w.End()
	}
	w.End()
	return w.Close()
}

type figure struct {
	name  string
	value float64
}

func hourFigures(h *msg.ReportHour) []figure {
	return []figure{{"covered_seconds", h.GetCoveredS()}, {"gpu_seconds", h.GetTotalS()}, {"used", h.GetUsedS()},
		{"held_idle", h.GetIdleS()}, {"held_unknown", h.GetUnknownS()}, {"free", h.GetFreeS()}, {"free_while_jobs_waited", h.GetAskedS()},
		{"lost_to_fragmentation", h.GetLostS()}, {"down", h.GetDownS()}, {"waited_for", h.GetWaitingS()}}
}

func rowJSON(w *jsonout.Writer, r *msg.ReportRow) {
	w.Object("")
	if r.GetNode() == "" && r.GetPartition() == "" {
		w.Str("account", r.GetAccount())
	}
	w.Int("uid", int64(r.GetUid()))
	w.Str("user", userName(r.GetUid()))
	w.Str("partition", r.GetPartition())
	w.Str("node", r.GetNode())
	w.Int("jobs", int64(r.GetJobs()))
	w.Int("started", int64(r.GetStarted()))
	for _, f := range []figure{{"gpu_seconds", r.GetGpuS()}, {"gpu_seconds_used", r.GetGpuUsedS()}, {"gpu_seconds_idle", r.GetGpuIdleS()},
		{"gpu_seconds_unknown", unknown(r)}, {"gpu_seconds_lost", r.GetGpuLostS()}, {"gpu_seconds_lost_beside", r.GetGpuLostBesideS()},
		{"gpu_seconds_waited", r.GetGpuWaitedS()}, {"cpu_seconds", r.GetCpuS()}} {
		w.Float(f.name, f.value)
	}
	known := func(name string, part, whole float64) {
		if whole > 0 {
			w.Float(name, part)
		} else {
			w.Null(name)
		}
	}
	known("wait_median_seconds", r.GetWaitMedianS(), float64(r.GetStarted())+r.GetWaitP90S())
	known("wait_p90_seconds", r.GetWaitP90S(), float64(r.GetStarted())+r.GetWaitP90S())
	known("cpu_seconds_used", r.GetCpuUsedS(), r.GetCpuKnownS())
	known("cpu_efficiency", r.GetCpuUsedS()/max(r.GetCpuKnownS(), 1e-9), r.GetCpuKnownS())
	known("memory_efficiency", r.GetMemUsedS()/max(r.GetMemKnownS(), 1e-9), r.GetMemKnownS())
	known("energy_joules", r.GetEnergyJ(), r.GetEnergyGpuS())
	w.End()
}
