package cli

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// mgrField is a column of sacctmgr: the name that format= knows, its header and its width. The value of a row is found by key.
type mgrField struct {
	name, header string
	width        int
	key          string // of mgrRow; empty: never anything
}

// mgrRow is one line: values by key.
type mgrRow map[string]string

// mgrEntity is what can be listed.
type mgrEntity struct {
	names    []string // the first is the singular in lower case
	fields   []mgrField
	standard string // shown without format=
	assocs   string // shown besides with withassoc
	rows     func(ctx context.Context, m *sacctmgrRun) ([]mgrRow, error)
	selects  map[string]string // conditions of where, and the keys that they compare
	bare     string            // the key that a word without = is compared with
}

// limits are the columns of limits, which are all empty: there are none yet.
func limits(list ...string) (f []mgrField) {
	widths := map[string]int{"MaxJobs": 7, "GrpJobs": 7, "GrpTRES": 13, "GrpSubmit": 9, "GrpWall": 11, "GrpTRESMins": 13, "GrpTRESRunMins": 13, "MaxTRES": 13,
		"MaxTRESPerNode": 14, "MaxSubmit": 9, "MaxWall": 11, "MaxTRESMins": 13, "MaxNodes": 8, "MaxCPUs": 8, "MaxCPUMins": 11, "GrpNodes": 8, "GrpCPUs": 8,
		"GrpMem": 7, "GrpCPUMins": 11, "MaxTRESPU": 13, "MaxJobsPU": 9, "MaxSubmitPU": 11, "MaxTRESPA": 13, "MaxJobsPA": 9, "MaxSubmitPA": 11, "MinTRES": 13,
		"Priority": 10, "Partition": 10, "Preempt": 10, "PreemptExemptTime": 19, "Flags": 40, "UsageThres": 10}
	for _, name := range list {
		f = append(f, mgrField{name, name, widths[name], ""})
	}
	return f
}

func assocFields() []mgrField {
	f := []mgrField{{"Account", "Account", 10, "account"}, {"User", "User", 10, "user"}, {"Cluster", "Cluster", 10, "cluster"}, {"Share", "Share", 9, "share"},
		{"Fairshare", "Share", 9, "share"}, {"QOS", "QOS", 20, "qos"}, {"DefaultQOS", "Def QOS", 9, ""}, {"ParentName", "ParentName", 10, "parent"},
		{"ID", "ID", 6, "id"}, {"Partition", "Partition", 10, ""}}
	return append(f, limits("Priority", "GrpJobs", "GrpTRES", "GrpSubmit", "GrpWall", "GrpTRESMins", "MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxSubmit", "MaxWall",
		"MaxTRESMins", "GrpTRESRunMins", "MaxNodes", "MaxCPUs", "MaxCPUMins", "GrpNodes", "GrpCPUs", "GrpMem", "GrpCPUMins")...)
}

const assocColumns = "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins"

// mgrEntities are what sacctmgr can list, as a 22.05 shows it.
func mgrEntities() []mgrEntity {
	assocs := assocFields()
	return []mgrEntity{
		{names: []string{"account", "accounts", "acct"}, standard: "Account,Description,Organization",
			assocs: "Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS",
			fields: append([]mgrField{{"Account", "Account", 10, "account"}, {"Description", "Descr", 20, "description"}, {"Organization", "Org", 20, "organization"},
				{"Coordinators", "Coord Accounts", 20, ""}}, assocs...),
			rows: accountRows, selects: map[string]string{"name": "account", "names": "account", "account": "account", "accounts": "account", "cluster": "", "clusters": "",
				"description": "description", "organization": "organization", "user": "user", "users": "user"}, bare: "account"},
		{names: []string{"association", "associations", "assoc", "assocs"}, standard: assocColumns, fields: assocs, rows: assocRows,
			selects: map[string]string{"user": "user", "users": "user", "account": "account", "accounts": "account", "acct": "account", "cluster": "", "clusters": "", "qos": "qos",
				"partition": "", "partitions": "", "id": "id", "ids": "id", "parent": "parent", "onlydefaults": ""}, bare: "user"},
		{names: []string{"cluster", "clusters"}, standard: "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefaultQOS",
			fields: append([]mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ControlHost", "ControlHost", 15, "host"}, {"ControlPort", "ControlPort", 12, "port"}, {"RPC", "RPC", 5, "rpc"},
				{"Classification", "Class", 9, ""}, {"Flags", "Flags", 20, ""}, {"NodeNames", "NodeNames", 20, "nodes"}, {"TRES", "TRES", 20, "tres"}}, assocs...),
			rows: clusterRows, selects: map[string]string{"name": "cluster", "names": "cluster", "cluster": "cluster", "clusters": "cluster"}, bare: "cluster"},
		{names: []string{"event", "events"}, standard: "Cluster,ClusterNodes,TimeStart,TimeEnd,State,Reason,User",
			fields: []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"ClusterNodes", "NodeName", -15, "node"}, {"NodeName", "NodeName", -15, "node"}, {"TimeStart", "TimeStart", 19, "start"},
				{"TimeEnd", "TimeEnd", 19, "end"}, {"State", "State", 6, "state"}, {"Reason", "Reason", 30, "reason"}, {"User", "User", 10, "user"}, {"Duration", "Duration", 13, ""},
				{"EventType", "Event", 7, "event"}, {"TRES", "TRES", 20, ""}},
			rows: eventRows, selects: map[string]string{"nodes": "node", "node": "node", "cluster": "", "clusters": "", "start": "", "end": "", "reason": "reason", "user": "user", "users": "user",
				"state": "state", "states": "state", "event": "event", "events": "event", "all_time": "", "all_clusters": "", "condflags": ""}, bare: "node"},
		{names: []string{"problem", "problems"}, standard: "Cluster,Account,User,Problem",
			fields: []mgrField{{"Cluster", "Cluster", 10, ""}, {"Account", "Account", 10, ""}, {"User", "User", 10, ""}, {"Problem", "Problem", 40, ""}}, rows: noRows, selects: anyOf("cluster", "user", "account")},
		qosEntity(), tresEntity(),
		{names: []string{"reservation", "reservations"}, standard: "Cluster,Name,TRES,Start,End,UnusedWall",
			fields: []mgrField{{"Cluster", "Cluster", 10, ""}, {"Name", "Name", 15, ""}, {"TRES", "TRES", 30, ""}, {"Start", "TimeStart", 19, ""}, {"End", "TimeEnd", 19, ""}, {"UnusedWall", "UnusedWall", 10, ""}},
			rows:   noRows, selects: anyOf("cluster", "name", "names", "nodes", "start", "end", "id")},
		{names: []string{"resource", "resources"}, standard: "Name,Server,Type,Count,Allocated,ServerType",
			fields: []mgrField{{"Name", "Name", 10, ""}, {"Server", "Server", 10, ""}, {"Type", "Type", 8, ""}, {"Count", "Count", 6, ""}, {"Allocated", "% Allocated", 11, ""}, {"ServerType", "ServerType", 10, ""}},
			rows:   noRows, selects: anyOf("cluster", "name", "names", "server", "withclusters")},
		{names: []string{"transaction", "transactions", "txn"}, standard: "TimeStamp,Action,Actor,Where,Info",
			fields: []mgrField{{"TimeStamp", "Time", 19, ""}, {"Action", "Action", 20, ""}, {"Actor", "Actor", 10, ""}, {"Where", "Where", 20, ""}, {"Info", "Info", 20, ""}},
			rows:   noRows, selects: anyOf("start", "end", "actor", "action", "accounts", "users", "clusters", "withassocinfo")},
		{names: []string{"user", "users"}, standard: "User,DefaultAccount,AdminLevel",
			assocs: "Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS",
			fields: append([]mgrField{{"User", "User", 10, "user"}, {"DefaultAccount", "Def Acct", 10, "defaultaccount"}, {"AdminLevel", "Admin", 9, "admin"},
				{"DefaultWCKey", "Def WCKey", 10, ""}, {"Coordinators", "Coord Accounts", 20, ""}}, assocs...),
			rows: userRows, selects: map[string]string{"name": "user", "names": "user", "user": "user", "users": "user", "account": "account", "accounts": "account", "cluster": "", "clusters": "",
				"adminlevel": "admin", "defaultaccount": "defaultaccount", "qos": "qos"}, bare: "user"},
		{names: []string{"wckey", "wckeys"}, standard: "WCKey,Cluster,User", fields: []mgrField{{"WCKey", "WCKey", 10, ""}, {"Cluster", "Cluster", 10, ""}, {"User", "User", 10, ""}},
			rows: noRows, selects: anyOf("user", "users", "cluster", "clusters", "name", "names")},
		{names: []string{"federation", "federations"}, standard: "Federation,Cluster,ID,Features,FedState",
			fields: []mgrField{{"Federation", "Federation", 10, ""}, {"Cluster", "Cluster", 10, ""}, {"ID", "ID", 2, ""}, {"Features", "Features", 20, ""}, {"FedState", "FedState", 12, ""}},
			rows:   noRows, selects: anyOf("name", "names", "cluster")},
	}
}

// anyOf are conditions of what has no rows.
func anyOf(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = ""
	}
	return m
}

func qosEntity() mgrEntity {
	f := append([]mgrField{{"Name", "Name", 10, "qos"}, {"Description", "Descr", 20, "description"}, {"ID", "ID", 6, "id"}, {"GraceTime", "GraceTime", 10, "grace"}, {"PreemptMode", "PreemptMode", 11, "mode"},
		{"UsageFactor", "UsageFactor", 11, "factor"}, {"Priority", "Priority", 10, "priority"}}, limits("Preempt", "PreemptExemptTime", "Flags", "UsageThres", "GrpTRES",
		"GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmit", "GrpWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA",
		"MaxJobsPA", "MaxSubmitPA", "MinTRES")...)
	for _, alias := range [][2]string{{"MaxTRESPerUser", "MaxTRESPU"}, {"MaxJobsPerUser", "MaxJobsPU"}, {"MaxSubmitJobsPerUser", "MaxSubmitPU"}, {"MaxTRESPerAccount", "MaxTRESPA"},
		{"MaxJobsPerAccount", "MaxJobsPA"}, {"MaxSubmitJobsPerAccount", "MaxSubmitPA"}, {"MaxTRESPerJob", "MaxTRES"}, {"MinTRESPerJob", "MinTRES"}, {"UsageThreshold", "UsageThres"}} {
		f = append(f, mgrField{alias[0], alias[1], 13, ""})
	}
	return mgrEntity{names: []string{"qos"}, fields: f, selects: map[string]string{"name": "qos", "names": "qos", "id": "id", "description": "description"}, bare: "qos",
		standard: "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags,UsageThres,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall," +
			"MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES",
		rows: func(context.Context, *sacctmgrRun) ([]mgrRow, error) {
			return []mgrRow{{"qos": "normal", "description": "Normal QOS default", "id": "1", "priority": "0", "grace": "00:00:00", "mode": "cluster", "factor": "1.000000"}}, nil
		}}
}

func tresEntity() mgrEntity {
	return mgrEntity{names: []string{"tres"}, standard: "Type,Name,ID", fields: []mgrField{{"Type", "Type", 8, "type"}, {"Name", "Name", 15, "name"}, {"ID", "ID", 6, "id"}},
		rows: tresRows, selects: map[string]string{"type": "type", "name": "name", "id": "id", "ids": "id"}, bare: "name"}
}

func noRows(context.Context, *sacctmgrRun) ([]mgrRow, error) { return nil, nil }

// knownUsers are root, those who may log in, the caller, and whoever is asked for and exists: directories are not listed.
func (m *sacctmgrRun) knownUsers() []string {
	names := []string{"root", self().Name}
	if passwd, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.SplitSeq(string(passwd), "\n") {
			f := strings.Split(line, ":")
			if len(f) > 6 && !strings.HasSuffix(f[6], "nologin") && !strings.HasSuffix(f[6], "/false") {
				if uid, err := strconv.Atoi(f[2]); err == nil && uid >= 1000 && uid < 65534 {
					names = append(names, f[0])
				}
			}
		}
	}
	for _, c := range m.where {
		if c.key == "user" {
			for _, v := range c.values {
				if a, ok := accounts.User(v); ok {
					names = append(names, a.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *sacctmgrRun) assoc(user string) mgrRow {
	r := mgrRow{"cluster": m.env.clusterName(), "account": acct.DefaultAccount, "user": user, "share": "1", "qos": "normal", "id": "1"}
	if uid, ok := lookupUID(user); user != "" && ok {
		r["id"] = strconv.FormatInt(format.AssociationID(uid), 10)
	}
	return r
}

func userRows(_ context.Context, m *sacctmgrRun) (rows []mgrRow, err error) {
	for _, name := range m.knownUsers() {
		r := m.assoc(name)
		r["defaultaccount"], r["admin"] = acct.DefaultAccount, "None"
		if name == "root" {
			r["admin"] = "Administrator"
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func accountRows(_ context.Context, m *sacctmgrRun) ([]mgrRow, error) {
	head := m.assoc("")
	rows := []mgrRow{head}
	if m.withAssoc {
		for _, name := range m.knownUsers() {
			rows = append(rows, m.assoc(name))
		}
	}
	for _, r := range rows {
		r["description"], r["organization"] = "default root account", acct.DefaultAccount
	}
	return rows, nil
}

func assocRows(_ context.Context, m *sacctmgrRun) ([]mgrRow, error) {
	rows := []mgrRow{m.assoc("")}
	for _, name := range m.knownUsers() {
		rows = append(rows, m.assoc(name))
	}
	return rows, nil
}

func clusterRows(ctx context.Context, m *sacctmgrRun) ([]mgrRow, error) {
	r := mgrRow{"cluster": m.env.clusterName(), "share": "1", "qos": "normal", "rpc": "9728"}
	err := m.ask(ctx, func(c *client.Client) error {
		reply, err := c.Config(ctx, &pb.ConfigRequest{})
		for _, kv := range reply.GetPairs() {
			switch kv.GetKey() {
			case "SlurmctldHost[0]":
				r["host"] = strings.TrimSuffix(kv.GetValue()[strings.IndexByte(kv.GetValue(), '(')+1:], ")")
			case "SlurmctldPort":
				r["port"], _, _ = strings.Cut(kv.GetValue(), "-")
			}
		}
		return err
	})
	return []mgrRow{r}, err
}

// eventRows are nodes that are out of use now. What was before is not kept.
func eventRows(ctx context.Context, m *sacctmgrRun) (rows []mgrRow, err error) {
	fc := m.env.formatContext(0)
	err = m.ask(ctx, func(c *client.Client) error {
		return eachNode(ctx, c, &pb.NodesRequest{}, fc, func(n *pb.NodeRecord) {
			state := ""
			switch {
			case n.GetState() == pb.NodeState_NODE_DOWN:
				state = "DOWN"
			case n.GetStateFlags()&pb.NodeDrain != 0:
				state = "DRAIN"
			default:
				return
			}
			user := n.GetReasonUser() + "(" + strconv.FormatUint(uint64(n.GetReasonUid()), 10) + ")"
			rows = append(rows, mgrRow{"cluster": m.env.clusterName(), "node": n.GetName(), "start": string(fc.AppendTime(nil, n.GetReasonNs(), "Unknown")), "end": "Unknown",
				"state": state, "reason": n.GetReason(), "user": user, "event": "Node"})
		})
	})
	return rows, err
}

func tresRows(ctx context.Context, m *sacctmgrRun) (rows []mgrRow, err error) {
	names := slices.Clone(acct.TresNames)
	err = m.ask(ctx, func(c *client.Client) error {
		return eachNode(ctx, c, &pb.NodesRequest{}, m.env.formatContext(0), func(n *pb.NodeRecord) {
			list, _ := tres.Parse(n.GetCfgTres())
			for _, it := range list {
				if strings.HasPrefix(it.Name, "gres/") && !slices.Contains(names, it.Name) {
					names = append(names, it.Name)
				}
			}
		})
	})
	id := 0
	for i, name := range names {
		if id = i + 1; i >= len(acct.TresNames) {
			id = 1001 + i - len(acct.TresNames)
		}
		class, rest, _ := strings.Cut(name, "/")
		rows = append(rows, mgrRow{"type": class, "name": rest, "id": strconv.Itoa(id)})
	}
	return rows, err
}
