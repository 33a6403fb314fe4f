package format

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// AppendNode writes a node as `scontrol show node` does.
func AppendNode(b []byte, c *Context, n *msg.NodeRecord, oneLine bool, details int) []byte {
	k := newBlock(b, c, oneLine)
	k.put("NodeName", n.GetName())
	if n.GetArch() != "" {
		k.put(" Arch", n.GetArch())
	}
	k.num(" CoresPerSocket", uint64(n.GetCores()))
	k.b = append(k.b, ' ')
	nodeCapacity(k, n, details)
	nodeStateLines(k, n)
	k.line()
	k.put("CfgTRES", n.GetCfgTres())
	k.line()
	k.put("AllocTRES", n.GetAllocTres())
	k.line()
	k.put("CurrentWatts", "0")
	k.put(" AveWatts", "0")
	for _, pair := range [...][2]string{{"Comment", n.GetComment()}, {"Extra", n.GetExtra()}} {
		if pair[1] != "" {
			k.line()
			k.put(pair[0], pair[1])
		}
	}
	if n.GetReason() != "" {
		k.line()
		k.put("Reason", n.GetReason())
		if n.GetReasonNs() != 0 {
			k.b = append(append(k.b, " ["+Escape(ReasonUser(c, n))+"@"...), c.AppendTime(nil, n.GetReasonNs(), "")...)
			k.b = append(k.b, ']')
		}
	}
	if d := n.GetDiagnosis(); d != "" {
		k.line()
		if oneLine {
			d = strings.ReplaceAll(d, " ", "_")
		}
		k.put("Diagnosis", d)
	}
	if oneLine {
		return append(k.b, '\n')
	}
	return append(k.b, "\n\n"...)
}

func nodeCapacity(k *Block, n *msg.NodeRecord, details int) {
	k.line()
	k.num("CPUAlloc", uint64(n.GetAllocCpus()))
	k.num(" CPUEfctv", uint64(n.GetCpus()-min(n.GetCoreSpec()*max(n.GetThreads(), 1), n.GetCpus())))
	k.num(" CPUTot", uint64(n.GetCpus()))
	if n.GetCpuLoadKnown() || n.GetCpuLoad() != 0 {
		k.put(" CPULoad", strconv.FormatFloat(n.GetCpuLoad(), 'f', 2, 64))
	} else {
		k.put(" CPULoad", "N/A")
	}
	k.line()
	k.put("AvailableFeatures", Or(n.GetFeatures(), null))
	k.line()
	k.put("ActiveFeatures", Or(n.GetActiveFeatures(), null))
	k.line()
	k.put("Gres", Or(n.GetGres(), null))
	if details > 0 {
		k.line()
		k.put("GresDrain", Or(n.GetGresDrain(), "N/A"))
		k.line()
		k.put("GresUsed", Or(n.GetGresUsed(), null))
	}
	k.line()
	k.put("NodeAddr", n.GetAddr())
	k.put(" NodeHostName", Hostname(n))
	if n.GetPort() != 0 { // the default port is not shown
		k.num(" Port", uint64(n.GetPort()))
	}
	if n.GetVersion() != "" {
		k.put(" Version", n.GetVersion())
	} else if n.GetPort() == 0 {
		k.b = append(k.b, ' ')
	}
	if n.GetOs() != "" {
		k.line()
		k.put("OS", n.GetOs())
		k.b = append(k.b, ' ')
	}
	k.line()
	k.num("RealMemory", n.GetRealMemoryMib())
	k.num(" AllocMem", n.GetAllocMemMib())
	if n.GetFreeMemMib() != 0 {
		k.num(" FreeMem", n.GetFreeMemMib())
	} else {
		k.put(" FreeMem", "N/A")
	}
	k.num(" Sockets", uint64(n.GetSockets()))
	k.num(" Boards", uint64(max(n.GetBoards(), 1)))
	if n.GetCoreSpec() != 0 || n.GetMemSpecMib() != 0 {
		k.line()
		k.num("CoreSpecCount", uint64(n.GetCoreSpec()))
		k.num(" MemSpecLimit", n.GetMemSpecMib())
	}
}

func nodeStateLines(k *Block, n *msg.NodeRecord) {
	k.line()
	k.put("State", NodeStateComplete(n))
	k.num(" ThreadsPerCore", uint64(n.GetThreads()))
	k.num(" TmpDisk", n.GetTmpDiskMib())
	k.num(" Weight", uint64(n.GetWeight()))
	k.put(" Owner", "N/A")
	k.put(" MCS_label", "N/A")
	if n.GetRebootNext() != "" {
		k.line()
		k.put("NextState", n.GetRebootNext())
	}
	if len(n.GetPartitions()) > 0 {
		k.line()
		k.put("Partitions", strings.Join(n.GetPartitions(), ","))
		k.b = append(k.b, ' ')
	}
	k.line()
	k.when("BootTime", n.GetBootNs(), "None")
	k.when(" SlurmdStartTime", n.GetNodedStartNs(), "None")
	k.line()
	k.when("LastBusyTime", n.GetLastBusyNs(), "Unknown")
}

// AppendPartition writes a partition as `scontrol show partition` does.
func AppendPartition(b []byte, c *Context, p *msg.PartitionRecord, oneLine bool) []byte {
	k := newBlock(b, c, oneLine)
	k.put("PartitionName", p.GetName())
	partitionAccess(k, p)
	k.line()
	k.put("DefaultTime", partitionTime(p.GetDefaultTimeS(), "NONE"))
	k.put(" DisableRootJobs", upperYes(p.GetDisableRootJobs()))
	k.put(" ExclusiveUser", upperYes(p.GetExclusiveUser()))
	k.num(" GraceTime", uint64(p.GetGraceTimeS()))
	k.put(" Hidden", upperYes(p.GetHidden()))
	k.line()
	k.put("MaxNodes", orUnlimited(p.GetMaxNodes()))
	k.put(" MaxTime", partitionTime(p.GetMaxTimeS(), "UNLIMITED"))
	k.num(" MinNodes", uint64(p.GetMinNodes()))
	k.put(" LLN", upperYes(p.GetLln()))
	k.put(" MaxCPUsPerNode", orUnlimited(p.GetMaxCpusPerNode()))
	if p.GetMaxCpusPerSocket() != 0 {
		k.put(" MaxCPUsPerSocket", orUnlimited(p.GetMaxCpusPerSocket()))
	}
	k.line()
	if sets := p.GetNodeSets(); len(sets) > 0 {
		k.put("NodeSets", strings.Join(sets, ","))
		k.line()
	}
	k.put("Nodes", Or(p.GetNodes(), null))
	k.line()
	k.num("PriorityJobFactor", uint64(p.GetPriorityJobFactor()))
	k.num(" PriorityTier", uint64(p.GetPriorityTier()))
	k.put(" RootOnly", upperYes(p.GetRootOnly()))
	k.put(" ReqResv", upperYes(p.GetReqResv()))
	k.put(" OverSubscribe", Or(p.GetOversubscribe(), "NO"))
	k.line()
	k.put("OverTimeLimit", overTime(p))
	k.put(" PreemptMode", Or(p.GetPreemptMode(), "OFF"))
	partitionTotals(k, p)
	if oneLine {
		return append(k.b, '\n')
	}
	return append(k.b, "\n\n"...)
}

func partitionAccess(k *Block, p *msg.PartitionRecord) {
	k.line()
	k.put("AllowGroups", Or(AllowGroups(p), "ALL"))
	// Allow lists take precedence over deny lists (slurm.conf(5), DenyAccounts and DenyQos).
	if allowed := NotAll(p.GetAllowAccounts()); allowed == "" && p.GetDenyAccounts() != "" {
		k.put(" DenyAccounts", p.GetDenyAccounts())
	} else {
		k.put(" AllowAccounts", Or(allowed, "ALL"))
	}
	if allowed := NotAll(p.GetAllowQos()); allowed == "" && p.GetDenyQos() != "" {
		k.put(" DenyQos", p.GetDenyQos())
	} else {
		k.put(" AllowQos", Or(allowed, "ALL"))
	}
	k.line()
	k.put("AllocNodes", Or(NotAll(p.GetAllowAllocNodes()), "ALL"))
	if p.GetAlternate() != "" {
		k.put(" Alternate", p.GetAlternate())
	}
	k.put(" Default", upperYes(p.GetIsDefault()))
	k.put(" QoS", Or(p.GetQos(), "N/A"))
}

func partitionTotals(k *Block, p *msg.PartitionRecord) {
	k.line()
	k.put("State", Or(p.GetState(), "UP"))
	k.num(" TotalCPUs", uint64(p.GetTotalCpus()))
	k.num(" TotalNodes", uint64(p.GetTotalNodes()))
	k.put(" SelectTypeParameters", Or(p.GetSelectTypeParameters(), "NONE"))
	k.line()
	k.put("JobDefaults", Or(p.GetJobDefaults(), null))
	k.line()
	k.b = memLimit(k.b, "Def", p.GetDefMemPerCpuMib(), p.GetDefMemPerNodeMib())
	k.b = memLimit(append(k.b, ' '), "Max", p.GetMaxMemPerCpuMib(), p.GetMaxMemPerNodeMib())
	k.line()
	k.put("TRES", Or(p.GetTres(), null))
	if p.GetTresBillingWeights() != "" {
		k.line()
		k.put("TRESBillingWeights", p.GetTresBillingWeights())
	}
}

func memLimit(b []byte, which string, perCPU, perNode uint64) []byte {
	switch {
	case perCPU != 0:
		return strconv.AppendUint(append(b, which+"MemPerCPU="...), perCPU, 10)
	case perNode != 0:
		return strconv.AppendUint(append(b, which+"MemPerNode="...), perNode, 10)
	}
	return append(b, which+"MemPerNode=UNLIMITED"...)
}

func upperYes(set bool) string { return strings.ToUpper(yes(set)) }

func partitionTime(s uint32, unset string) string {
	switch s {
	case 0:
		return unset
	case msg.Unlimited:
		return "UNLIMITED"
	}
	return timespec.Clock(LimitSeconds(s))
}

func overTime(p *msg.PartitionRecord) string {
	s := p.GetOverTimeLimitS()
	switch {
	case s == msg.Unlimited:
		return "UNLIMITED"
	case s == 0 && !p.GetNoOverTime():
		return "NONE"
	}
	return decimal((s + 59) / 60)
}
