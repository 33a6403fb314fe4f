package doc

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
)

// WritePartition writes a partition (data_parser v0.0.42, partition_info); key is "" within a list.
func WritePartition(w *jsonout.Writer, key string, p *msg.PartitionRecord) {
	w.Object(key)
	w.Object("nodes")
	w.Str("allowed_allocation", format.NotAll(p.GetAllowAllocNodes()))
	w.Str("configured", p.GetNodes())
	w.Int("total", int64(p.GetTotalNodes()))
	w.End()
	w.Object("accounts")
	w.Str("allowed", format.NotAll(p.GetAllowAccounts()))
	w.Str("deny", p.GetDenyAccounts())
	w.End()
	w.Object("groups")
	w.Str("allowed", format.AllowGroups(p))
	w.End()
	w.Object("qos")
	w.Str("allowed", format.NotAll(p.GetAllowQos()))
	w.Str("deny", p.GetDenyQos())
	w.Str("assigned", p.GetQos())
	w.End()
	w.Str("alternate", p.GetAlternate())
	w.Object("tres")
	w.Str("billing_weights", p.GetTresBillingWeights())
	w.Str("configured", p.GetTres())
	w.End()
	w.Str("cluster", "")
	w.Strs("select_type")
	w.Object("cpus")
	w.Int("task_binding", 0)
	w.Int("total", int64(p.GetTotalCpus()))
	w.End()
	partitionDefaults(w, p)
	w.Int("grace_time", int64(p.GetGraceTimeS()))
	partitionMaximums(w, p)
	w.Object("minimums")
	w.Int("nodes", int64(p.GetMinNodes()))
	w.End()
	w.Str("name", p.GetName())
	w.Str("node_sets", strings.Join(p.GetNodeSets(), ","))
	partitionRest(w, p)
	w.End()
}

func partitionDefaults(w *jsonout.Writer, p *msg.PartitionRecord) {
	w.Object("defaults")
	memory(w, p.GetDefMemPerCpuMib(), p.GetDefMemPerNodeMib())
	minutes(w, "time", p.GetDefaultTimeS())
	w.Str("job", p.GetJobDefaults())
	w.End()
}

// memPerCPU is the bit by which Slurm distinguishes a limit per CPU from one per node.
const memPerCPU = -1 << 63

func memory(w *jsonout.Writer, perCPU, perNode uint64) {
	if perCPU != 0 {
		w.Int("memory_per_cpu", memPerCPU|int64(perCPU))
		w.Number("partition_memory_per_cpu", perCPU)
		w.Unset("partition_memory_per_node")
		return
	}
	w.Int("memory_per_cpu", int64(perNode))
	w.Unset("partition_memory_per_cpu")
	w.Number("partition_memory_per_node", perNode)
}

func partitionMaximums(w *jsonout.Writer, p *msg.PartitionRecord) {
	w.Object("maximums")
	unlimited := func(key string, n uint32) { w.Limit(key, uint64(n), n == 0 || n == msg.Unlimited) }
	unlimited("cpus_per_node", p.GetMaxCpusPerNode())
	unlimited("cpus_per_socket", p.GetMaxCpusPerSocket())
	memory(w, p.GetMaxMemPerCpuMib(), p.GetMaxMemPerNodeMib())
	w.Limit("nodes", uint64(p.GetMaxNodes()), p.GetMaxNodes() == msg.Unlimited)
	shares, force := oversubscribeShares(p.GetOversubscribe())
	w.Int("shares", shares)
	w.Object("oversubscribe")
	w.Int("jobs", shares)
	if force {
		w.Strs("flags", "force")
	} else {
		w.Strs("flags")
	}
	w.End()
	minutes(w, "time", p.GetMaxTimeS())
	minutes(w, "over_time_limit", p.GetOverTimeLimitS())
	w.End()
}

// oversubscribeShares reads "NO", "YES:4", "FORCE:4", "EXCLUSIVE": how many jobs may share a core; EXCLUSIVE is 0.
func oversubscribeShares(text string) (jobs int64, force bool) {
	word, count, hasCount := strings.Cut(text, ":")
	switch strings.ToUpper(word) {
	case "EXCLUSIVE":
		return 0, false
	case "YES", "FORCE":
		jobs = 4
		if n, err := strconv.ParseInt(count, 10, 16); hasCount && err == nil {
			jobs = n
		}
		return jobs, strings.EqualFold(word, "FORCE")
	}
	return 1, false
}

func partitionRest(w *jsonout.Writer, p *msg.PartitionRecord) {
	w.Object("priority")
	w.Int("job_factor", int64(p.GetPriorityJobFactor()))
	w.Int("tier", int64(p.GetPriorityTier()))
	w.End()
	w.Object("timeouts")
	w.Unset("resume")
	w.Unset("suspend")
	w.End()
	w.Object("partition")
	w.Strs("state", format.Or(p.GetState(), "UP"))
	w.End()
	w.Unset("suspend_time")
}

// WriteReservation writes a reservation as an element of "reservations" (data_parser v0.0.42, reservation_info).
func WriteReservation(w *jsonout.Writer, r *msg.ReservationRecord) {
	w.Object("")
	w.Str("accounts", r.GetAccounts())
	w.Str("burst_buffer", "")
	w.Int("core_count", int64(r.GetCoreCount()))
	w.List("core_specializations")
	w.End()
	w.Seconds("end_time", r.GetEndNs())
	w.Str("features", r.GetFeatures())
	w.Strs("flags", ResvFlags(r)...)
	w.Str("groups", r.GetGroups())
	w.Str("licenses", r.GetLicenses())
	w.Int("max_start_delay", int64(r.GetMaxStartDelayS()))
	w.Str("name", r.GetName())
	w.Int("node_count", int64(r.GetNodeCount()))
	w.Str("node_list", r.GetNodes())
	w.Str("partition", r.GetPartition())
	w.Object("purge_completed")
	if slices.Contains(r.GetFlags(), "PURGE_COMP") {
		w.Number("time", uint64(r.GetPurgeCompS()))
	} else {
		w.Unset("time")
	}
	w.End()
	w.Seconds("start_time", r.GetStartNs())
	w.Number("watts", 0)
	w.Str("tres", r.GetTres())
	w.Str("users", r.GetUsers())
	w.End()
}

// ResvFlags are the flags that have a word in JSON; FIRST_CORES and REPLACE_DOWN have none.
func ResvFlags(r *msg.ReservationRecord) []string {
	var list []string
	for _, f := range r.GetFlags() {
		switch f {
		case "FIRST_CORES", "REPLACE_DOWN":
			continue
		case "NO_HOLD_JOBS_AFTER":
			f = "NO_HOLD_JOBS_AFTER_END"
		}
		list = append(list, f)
	}
	return list
}

// WriteLicense writes a license as an element of "licenses" (data_parser v0.0.42, license).
func WriteLicense(w *jsonout.Writer, l *msg.LicenseRecord) {
	w.Object("")
	w.Str("LicenseName", l.GetName())
	w.Int("Total", int64(l.GetTotal()))
	w.Int("Used", int64(l.GetUsed()))
	w.Int("Free", int64(l.GetTotal()-min(l.GetUsed(), l.GetTotal())))
	w.Bool("Remote", false)
	w.Int("Reserved", int64(l.GetReserved()))
	w.Int("LastConsumed", 0)
	w.Int("LastDeficit", 0)
	w.Int("LastUpdate", 0)
	w.End()
}
