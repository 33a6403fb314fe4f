package acct

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// LiveFormat is sstat's default format.
const LiveFormat = "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages," +
	"mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask," +
	"avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin," +
	"tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin," +
	"tresusageoutminnode,tresusageoutmintask,tresusageouttot"

// liveNames are the fields of sstat, in the order of its --helpformat.
const liveNames = "AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize ConsumedEnergy ConsumedEnergyRaw JobID " +
	"MaxDiskRead MaxDiskReadNode " +
	"MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask " +
	"MaxVMSize MaxVMSizeNode " +
	"MaxVMSizeTask MinCPU MinCPUNode MinCPUTask Nodelist NTasks Pids ReqCPUFreq ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov " +
	"TRESUsageInAve TRESUsageInMax " +
	"TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve " +
	"TRESUsageOutMax " +
	"TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot"

// LiveNames returns the fields of sstat.
func LiveNames() []string { return strings.Fields(liveNames) }

// liveFields returns the fields of sstat: those of sacct with the same names, and those that only running steps have.
func liveFields() (list []Field) {
	all := fields()
	for _, name := range LiveNames() {
		switch name {
		case "JobID":
			list = append(list, Field{Name: name, Width: -12,
				Text: both(func(r Row) string { return number(uint64(r.GetId())) + r.dotStep() })})
		case "Pids":
			list = append(list, Field{Name: name, Width: 20, Text: both(func(r Row) string {
				var pids []string
				for _, u := range r.usage() {
					for _, pid := range u.GetPidList() {
						pids = append(pids, number(uint64(pid)))
					}
				}
				return strings.Join(pids, ",")
			})})
		case "Nodelist":
			list = append(list, Field{Name: name, Width: 20, Text: both(nodeList)})
		default:
			f := *lookup(all, name)
			if name == "AveDiskRead" || name == "AveDiskWrite" {
				f.Width = 12
			}
			list = append(list, f)
		}
	}
	return list
}

// ParseLive is Parse for sstat.
func ParseLive(list string) ([]Column, error) { return parse(liveFields(), list) }

// LiveRows combines the nodes' reports on running steps into one row per step, in the order of jobs; made are the steps created by
// srun, by job.
func LiveRows(list []*msg.StepUsage, made map[uint32][]*msg.StepRecord) (rows []Row) {
	for _, u := range list {
		id, step := u.GetKey().GetJobId(), jobid.StepName(u.GetKey().GetStep())
		i := slices.IndexFunc(rows, func(r Row) bool { return r.GetId() == id && r.Step == step })
		if i < 0 {
			row := Row{JobRecord: &msg.JobRecord{Id: id, BatchHost: u.GetNode(), State: msg.JobState_JOB_RUNNING}, Step: step, live: true}
			if k := slices.IndexFunc(made[id], func(s *msg.StepRecord) bool { return s.GetStepId() == u.GetKey().GetStep() }); k >= 0 {
				row.made = made[id][k]
			}
			rows = append(rows, row)
			i = len(rows) - 1
		}
		rows[i].Usage = append(rows[i].Usage, u)
	}
	return rows
}

// LiveRowsByNode returns a row per node of each step (sstat --pidformat).
func LiveRowsByNode(list []*msg.StepUsage) (rows []Row) {
	for _, u := range list {
		rows = append(rows, Row{JobRecord: &msg.JobRecord{Id: u.GetKey().GetJobId(), BatchHost: u.GetNode(), NodeList: u.GetNode(),
			State: msg.JobState_JOB_RUNNING, Usage: []*msg.StepUsage{u}}, Step: jobid.StepName(u.GetKey().GetStep()), live: true})
	}
	return rows
}
