package sacctmgr

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// mgrField is a column of sacctmgr: its name for format=, header and width. key finds the value in a row.
type mgrField struct {
	name, header string
	width        int
	key          string // in mgrRow; empty: always empty
}

// numberFields returns the columns of numeric settings, under each of their names, in the order in which abbreviations are looked
// up. Settings of the other kinds of record are known, but empty.
func numberFields(on accounts.On) (f []mgrField) {
	for _, own := range []bool{true, false} {
		for i := range accounts.Table {
			s := &accounts.Table[i]
			if !s.Numeric() || (s.On&on != 0) != own {
				continue
			}
			for _, name := range s.Names() {
				switch {
				case own:
					f = append(f, mgrField{name, s.Header, s.Width, settingKey(s)})
				case !slices.ContainsFunc(f, func(g mgrField) bool { return g.name == name }):
					f = append(f, mgrField{name, s.Header, s.Width, ""})
				}
			}
		}
	}
	slices.SortFunc(f, func(a, b mgrField) int { return strings.Compare(a.name, b.name) })
	return f
}

func assocFields() []mgrField {
	f := []mgrField{{"Account", "Account", 10, "account"}, {"User", "User", 10, "user"}, {"Cluster", "Cluster", 10, "cluster"},
		{"QOS", "QOS", 20, "qos"}, {"QOSLevel", "QOS", 20, "qos"}, {"QOSRAW", "QOS_RAW", 10, "qosid"},
		{"QOS_RAW", "QOS_RAW", 10, "qosid"},
		{"DefaultQOS", "Def QOS", 9, "defaultqos"}, {"ParentName", "ParentName", 10, "parent"}, {"ParentID", "ParentID", 8, "parentid"},
		{"ID", "ID", 6, "id"}, {"LFT", "LFT", 6, "lft"}, {"RGT", "RGT", 6, "rgt"},
		{"Partition", "Partition", 10, "partition"}, {"Flags", "Flags", 20, ""}}
	return append(append(f, numberFields(accounts.Assoc)...), mgrField{"LimitHours", "LimitHours", 30, "LimitHours"},
		mgrField{"DefaultPartition", "DefaultPartition", 16, "DefaultPartition"}, mgrField{"DefPartition", "DefaultPartition", 16,
			"DefaultPartition"}, mgrField{"DefaultGPUType", "DefaultGPUType", 14, "DefaultGPUType"},
		mgrField{"DefGPUType", "DefaultGPUType", 14, "DefaultGPUType"})
}

func qosFields() []mgrField {
	f := []mgrField{{"Name", "Name", 10, "qos"}, {"Description", "Descr", 20, "description"}, {"ID", "ID", 6, "id"},
		{"PreemptMode", "PreemptMode", 11, "mode"}, {"Preempt", "Preempt", 10, "preempt"}, {"Flags", "Flags", 20, "flags"}}
	f = append(append(f, numberFields(accounts.QOS)...), mgrField{"LimitHours", "LimitHours", 30, "LimitHours"})
	for i := range f { // these limits of associations are per-user limits of a QOS
		switch f[i].name {
		case "MaxJobs":
			f[i].header, f[i].width = "MaxJobs", 7
		case "MaxSubmitJobs", "MaxSubmit":
			f[i].header, f[i].width, f[i].key = "MaxSubmit", 9, "MaxSubmitJobsPerUser"
		}
	}
	return f
}

func eventFields() []mgrField {
	return []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ClusterNodes", "Cluster Nodes", 20, "nodes"},
		{"NodeName", "NodeName", -15, "node"}, {"TimeStart", "TimeStart", 19, "start"},
		{"Start", "TimeStart", 19, "start"}, {"TimeEnd", "TimeEnd", 19, "end"}, {"End", "TimeEnd", 19, "end"},
		{"State", "State", 6, "state"}, {"StateRaw", "StateRaw", 8, "stateraw"}, {"Reason", "Reason", 30, "reason"},
		{"User", "User", 10, "user"}, {"Duration", "Duration", 13, "duration"}, {"Event", "Event", 7, "event"},
		{"EventRaw", "EventRaw", 8, "eventraw"}, {"EventType", "Event", 7, "event"}, {"TRES", "TRES", 20, "tres"}}
}

func clusterFields() []mgrField {
	f := []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ControlHost", "ControlHost", 15, "host"},
		{"ControlPort", "ControlPort", 12, "port"}, {"RPC", "RPC", 5, "rpc"},
		{"Classification", "Class", 9, ""}, {"CPUCount", "CPU Cnt", 7, ""}, {"NodeCount", "NodeCount", 9, "nodecount"},
		{"ClusterNodes", "Cluster Nodes", 20, "nodes"}, {"NodeNames", "NodeName", -15, ""},
		{"PluginIDSelect", "PluginIDSelect", 14, ""}, {"TRES", "TRES", 20, "tres"}, {"Federation", "Federation", 10, ""},
		{"FedState", "FedState", 12, "fedstate"},
		{"FedStateRaw", "FedStateRaw", 11, "fedid"}, {"Features", "Features", 20, ""}, {"ID", "ID", 6, "fedid"}}
	return append(f, assocFields()...)
}
