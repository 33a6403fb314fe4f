package format

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// AppendConfig writes a configuration as a valid slurm.conf: the pairs of scontrol show config that are keys, then nodes and
// partitions.
func AppendConfig(b []byte, c *Context, pairs []*msg.KeyValue, nodes []*msg.NodeRecord, parts []*msg.PartitionRecord) []byte {
	b = append(c.AppendTime(append(b, "########################################################\n#   Configuration file for Slurm - "...),
		c.Now.UnixNano(), ""), '\n')
	b = append(b, "########################################################\n#\n#\n"...)
	for _, p := range pairs {
		if value := confValue(p.GetKey(), p.GetValue()); value != "" {
			b = fmt.Appendf(b, "%s=%s\n", confKey(p.GetKey()), Escape(value))
		}
	}
	b = append(b,
		"#\n########################################################\n#              COMPUTE "+
			"NODES\n########################################################\n"...)
	for _, n := range nodes {
		b = confNode(b, n)
	}
	b = append(b,
		"#\n########################################################\n#              "+
			"PARTITIONS\n########################################################\n"...)
	for _, p := range parts {
		b = confPartition(b, p)
	}
	return b
}

// confKey drops the index of SlurmctldHost[0].
func confKey(key string) string {
	name, _, _ := strings.Cut(key, "[")
	return name
}

// confValue converts a value of scontrol show config to that in slurm.conf; "" leaves out the pair: values that cannot be set, and
// words for a default.
func confValue(key, value string) string {
	switch key {
	case "BOOT_TIME", "HASH_VAL", "NEXT_JOB_ID", "SLURM_CONF", "SLURM_VERSION", "MULTIPLE_SLURMD", "SLUICE_VERSION", "Licenses_Used",
		"RequeueExitHold":
		return ""
	}
	switch strings.ToLower(value) {
	case "", "(null)", "(null type)", "n/a", "none", "(none)", "not set":
		return ""
	}
	if key == "SlurmUser" || key == "SlurmdUser" {
		value, _, _ = strings.Cut(value, "(")
	}
	if strings.HasPrefix(key, "SlurmctldHost") {
		return value
	}
	number, unit, _ := strings.Cut(value, " ")
	if _, err := strconv.Atoi(number); err == nil && unit != "" && !strings.Contains(unit, " ") {
		return number // "30 sec", "300 nodes/min"
	}
	if strings.Contains(value, " ") {
		return `"` + value + `"`
	}
	return value
}

func confNode(b []byte, n *msg.NodeRecord) []byte {
	b = fmt.Appendf(b, "NodeName=%s", n.GetName())
	text := func(key, value, unset string) {
		if value != "" && value != unset {
			b = fmt.Appendf(b, " %s=%s", key, Escape(value))
		}
	}
	number := func(key string, value uint64, unset uint64) {
		if value != unset {
			b = fmt.Appendf(b, " %s=%d", key, value)
		}
	}
	text("NodeAddr", n.GetAddr(), n.GetName())
	text("NodeHostname", n.GetHostname(), n.GetName())
	number("Port", uint64(n.GetPort()), 0)
	number("CPUs", uint64(n.GetCpus()), 0)
	number("Boards", uint64(max(n.GetBoards(), 1)), 1)
	number("Sockets", uint64(n.GetSockets()), 0)
	number("CoresPerSocket", uint64(n.GetCores()), 0)
	number("ThreadsPerCore", uint64(n.GetThreads()), 0)
	number("RealMemory", n.GetRealMemoryMib(), 0)
	number("TmpDisk", n.GetTmpDiskMib(), 0)
	number("Weight", uint64(n.GetWeight()), 1)
	number("CoreSpecCount", uint64(n.GetCoreSpec()), 0)
	number("MemSpecLimit", n.GetMemSpecMib(), 0)
	text("Feature", n.GetFeatures(), "")
	gres, _, _ := strings.Cut(n.GetGres(), "(")
	text("Gres", gres, "")
	return append(b, '\n')
}

func confPartition(b []byte, p *msg.PartitionRecord) []byte {
	b = fmt.Appendf(b, "PartitionName=%s", p.GetName())
	for _, pair := range [...]struct{ key, value, unset string }{
		{"AllowGroups", p.GetAllowGroups(), "ALL"}, {"AllowAccounts", p.GetAllowAccounts(), "ALL"}, {"AllowQos", p.GetAllowQos(), "ALL"},
		{"DenyAccounts", p.GetDenyAccounts(), ""}, {"DenyQos", p.GetDenyQos(), ""}, {"AllocNodes", p.GetAllowAllocNodes(), "ALL"},
		{"Alternate", p.GetAlternate(), ""},
		{"Default", upperYes(p.GetIsDefault()), "NO"}, {"DefaultTime", partitionTime(p.GetDefaultTimeS(), ""), ""},
		{"DisableRootJobs", upperYes(p.GetDisableRootJobs()), "NO"},
		{"ExclusiveUser", upperYes(p.GetExclusiveUser()), "NO"}, {"GraceTime", decimal(p.GetGraceTimeS()), "0"},
		{"Hidden", upperYes(p.GetHidden()), "NO"},
		{"LLN", upperYes(p.GetLln()), "NO"}, {"MaxNodes", orUnlimited(p.GetMaxNodes()), "UNLIMITED"},
		{"MaxTime", partitionTime(p.GetMaxTimeS(), "UNLIMITED"), "UNLIMITED"},
		{"MinNodes", decimal(p.GetMinNodes()), "0"}, {"MaxCPUsPerNode", orUnlimited(p.GetMaxCpusPerNode()), "UNLIMITED"},
		{"OverSubscribe", p.GetOversubscribe(), "NO"}, {"OverTimeLimit", overTime(p), "NONE"},
		{"PreemptMode", p.GetPreemptMode(), "OFF"}, {"PriorityJobFactor", decimal(p.GetPriorityJobFactor()), "1"},
		{"PriorityTier", decimal(p.GetPriorityTier()), "1"},
		{"QOS", p.GetQos(), ""}, {"ReqResv", upperYes(p.GetReqResv()), "NO"}, {"RootOnly", upperYes(p.GetRootOnly()), "NO"},
		{"State", p.GetState(), "UP"},
		{"DefMemPerCPU", strconv.FormatUint(p.GetDefMemPerCpuMib(), 10), "0"},
		{"DefMemPerNode", strconv.FormatUint(p.GetDefMemPerNodeMib(), 10), "0"},
		{"MaxMemPerCPU", strconv.FormatUint(p.GetMaxMemPerCpuMib(), 10), "0"},
		{"MaxMemPerNode", strconv.FormatUint(p.GetMaxMemPerNodeMib(), 10), "0"},
		{"TRESBillingWeights", p.GetTresBillingWeights(), ""}, {"Nodes", p.GetNodes(), ""},
	} {
		if pair.value != "" && pair.value != pair.unset {
			b = fmt.Appendf(b, " %s=%s", pair.key, Escape(pair.value))
		}
	}
	return append(b, '\n')
}
