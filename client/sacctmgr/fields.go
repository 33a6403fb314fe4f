package sacctmgr

import "slices"

// mgrField is a column of sacctmgr: the name that format= knows, its header and its width. The value of a row is found by key.
type mgrField struct {
	name, header string
	width        int
	key          string // of mgrRow; empty: never anything
}

// fieldsNamed are columns with the same header and width and without a value, by each of their names.
func fieldsNamed(header string, width int, names ...string) (f []mgrField) {
	for _, name := range names {
		f = append(f, mgrField{name, header, width, ""})
	}
	return f
}

// limitFields are the columns of limits, which are all empty: there are none yet.
func limitFields() []mgrField {
	return slices.Concat(
		fieldsNamed("Flags", 20, "Flags"),
		fieldsNamed("GrpCPUMins", 11, "GrpCPUMins"), fieldsNamed("GrpCPURunMins", 13, "GrpCPURunMins"),
		fieldsNamed("GrpCPUs", 8, "GrpCPUs"),
		fieldsNamed("GrpJobs", 7, "GrpJobs"), fieldsNamed("GrpJobsAccrue", 13, "GrpJobsAccrue"), fieldsNamed("GrpMem", 7, "GrpMem"),
		fieldsNamed("GrpNodes", 8, "GrpNodes"),
		fieldsNamed("GrpSubmit", 9, "GrpSubmit", "GrpSubmitJobs"), fieldsNamed("GrpTRES", 13, "GrpTRES"),
		fieldsNamed("GrpTRESMins", 13, "GrpTRESMins"),
		fieldsNamed("GrpTRESRunMin", 13, "GrpTRESRunMins"), fieldsNamed("GrpWall", 11, "GrpWall"),
		fieldsNamed("MaxCPUMins", 11, "MaxCPUMins"), fieldsNamed("MaxCPURunMinsPU", 15, "MaxCPURunMins"),
		fieldsNamed("MaxCPUs", 8, "MaxCPUs", "MaxCPUsPerJob"),
		fieldsNamed("MaxCPUsPU", 9, "MaxCPUsPU", "MaxCPUsPerUser"), fieldsNamed("MaxJobs", 7, "MaxJobs"),
		fieldsNamed("MaxJobsAccrue", 13, "MaxJobsAccrue"),
		fieldsNamed("MaxJobsAccruePA", 15, "MaxJobsAccruePA", "MaxJobsAccruePerAccount"),
		fieldsNamed("MaxJobsAccruePU", 15, "MaxJobsAccruePU", "MaxJobsAccruePerUser"),
		fieldsNamed("MaxJobsPA", 9, "MaxJobsPA", "MaxJobsPerAccount"), fieldsNamed("MaxJobsPU", 9, "MaxJobsPU", "MaxJobsPerUser"),
		fieldsNamed("MaxNodes", 8, "MaxNodes", "MaxNodesPerJob"), fieldsNamed("MaxNodesPU", 10, "MaxNodesPU", "MaxNodesPerUser"),
		fieldsNamed("MaxSubmit", 9, "MaxSubmit", "MaxSubmitJobs"), fieldsNamed("MaxSubmitPA", 11, "MaxSubmitPA", "MaxSubmitJobsPA",
			"MaxSubmitJobsPerAccount"),
		fieldsNamed("MaxSubmitPU", 11, "MaxSubmitPU", "MaxSubmitJobsPU", "MaxSubmitJobsPerUser"),
		fieldsNamed("MaxTRES", 13, "MaxTRES", "MaxTRESPerJob", "MaxTRESPJ"),
		fieldsNamed("MaxTRESMins", 13, "MaxTRESMins", "MaxTRESMinsPerJob"), fieldsNamed("MaxTRESPA", 13, "MaxTRESPA", "MaxTRESPerAccount"),
		fieldsNamed("MaxTRESPerNode", 14, "MaxTRESPerNode"), fieldsNamed("MaxTRESPU", 13, "MaxTRESPU", "MaxTRESPerUser"),
		fieldsNamed("MaxTRESRunMinsP", 15, "MaxTRESRunMinsPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPerUser"),
		fieldsNamed("MaxWall", 11, "MaxWall", "MaxWallDurationPerJob", "MaxWallPJ"), fieldsNamed("MinCPUs", 8, "MinCPUs"),
		fieldsNamed("MinPrioThres", 12, "MinPrioThreshold", "MinPriorityThreshold"), fieldsNamed("MinTRES", 13, "MinTRES", "MinTRESPerJob"))
}

func assocFields() []mgrField {
	f := []mgrField{{"Account", "Account", 10, "account"}, {"User", "User", 10, "user"}, {"Cluster", "Cluster", 10, "cluster"},
		{"Share", "Share", 9, "share"},
		{"Fairshare", "Share", 9, "share"}, {"QOS", "QOS", 20, "qos"}, {"QOSLevel", "QOS", 20, "qos"}, {"QOSRAW", "QOS_RAW", 10, "qosid"},
		{"QOS_RAW", "QOS_RAW", 10, "qosid"},
		{"DefaultQOS", "Def QOS", 9, ""}, {"ParentName", "ParentName", 10, "parent"}, {"ParentID", "ParentID", 8, "parentid"},
		{"ID", "ID", 6, "id"}, {"LFT", "LFT", 6, "lft"}, {"RGT", "RGT", 6, "rgt"},
		{"Partition", "Partition", 10, ""}, {"Priority", "Priority", 10, ""}}
	return append(f, limitFields()...)
}

func qosFields() []mgrField {
	f := []mgrField{{"Name", "Name", 10, "qos"}, {"Description", "Descr", 20, "description"}, {"ID", "ID", 6, "id"},
		{"GraceTime", "GraceTime", 10, "grace"},
		{"PreemptMode", "PreemptMode", 11, "mode"}, {"UsageFactor", "UsageFactor", 11, "factor"}, {"Priority", "Priority", 10, "priority"},
		{"Preempt", "Preempt", 10, ""},
		{"PreemptExemptTime", "PreemptExemptTime", 19, ""}, {"UsageThreshold", "UsageThres", 10, ""},
		{"LimitFactor", "LimitFactor", 11, ""}}
	return append(f, limitFields()...)
}

func eventFields() []mgrField {
	return []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ClusterNodes", "Cluster Nodes", 20, "nodes"},
		{"NodeName", "NodeName", -15, "node"}, {"TimeStart", "TimeStart", 19, "start"},
		{"Start", "TimeStart", 19, "start"}, {"TimeEnd", "TimeEnd", 19, "end"}, {"End", "TimeEnd", 19, "end"},
		{"State", "State", 6, "state"}, {"Reason", "Reason", 30, "reason"},
		{"User", "User", 10, "user"}, {"Duration", "Duration", 13, "duration"}, {"Event", "Event", 7, "event"},
		{"EventType", "Event", 7, "event"}, {"TRES", "TRES", 20, "tres"}}
}

func clusterFields() []mgrField {
	f := []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ControlHost", "ControlHost", 15, "host"},
		{"ControlPort", "ControlPort", 12, "port"}, {"RPC", "RPC", 5, "rpc"},
		{"Classification", "Class", 9, ""}, {"CPUCount", "CPU Cnt", 7, ""}, {"NodeCount", "NodeCount", 9, "nodecount"},
		{"ClusterNodes", "Cluster Nodes", 20, "nodes"}, {"NodeNames", "NodeName", 20, ""},
		{"PluginIDSelect", "PluginIDSelect", 14, ""}, {"TRES", "TRES", 20, "tres"}, {"Federation", "Federation", 10, ""},
		{"FedState", "FedState", 12, "fedstate"},
		{"FedStateRaw", "FedStateRaw", 11, "fedid"}, {"Features", "Features", 20, ""}, {"ID", "ID", 6, "fedid"}}
	return append(f, assocFields()...)
}
