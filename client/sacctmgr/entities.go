package sacctmgr

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// Messages of a real sacctmgr after an unknown condition.
const (
	setValue   = " Use keyword 'set' to modify value\n"
	setPrinted = " Use keyword 'set' to modify SLURM_PRINT_VALUE\n"
)

// mgrRow is one line: values by key.
type mgrRow map[string]string

// mgrEntity is an entity that can be listed.
type mgrEntity struct {
	names    []string // the first is the singular in lower case
	fields   []mgrField
	standard string // columns without format=
	assocs   string // additional columns with withassoc
	rows     func(ctx context.Context, m *run) ([]mgrRow, error)
	selects  map[string]string // conditions of where, and the keys that they test
	bare     string            // the key that a word without = tests
	clusters string            // additional columns with withclusters or withfed
	coords   string            // additional columns with withcoordinator
	hint     string            // printed after an unknown condition: how to change something, for entities that can be changed
}

const assocColumns = "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins"

// mgrEntities returns the entities that sacctmgr can list, as in 22.05.
func mgrEntities() []mgrEntity {
	list := ownEntities()
	all := []mgrField{{"Clusters", "Cluster", 10, "cluster"}, {"WCKeys", "WCKeys", 20, ""}}
	for _, e := range list {
		for _, f := range e.fields {
			if e.names[0] == "wckey" { // it has a table of its own
				break
			}
			if f.key = ""; !slices.ContainsFunc(all, func(g mgrField) bool { return g.name == f.name }) {
				all = append(all, f)
			}
		}
	}
	for i := range list {
		if list[i].names[0] != "wckey" {
			list[i].fields = append(list[i].fields, all...) // fields of other entities are known, but empty
		}
	}
	return list
}

// ownEntities returns the entities with their own fields.
func ownEntities() []mgrEntity {
	assocs := assocFields()
	return []mgrEntity{
		{names: []string{"account", "accounts", "acct"}, standard: "Account,Description,Organization", coords: "Coordinators",
			assocs: "Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS",
			fields: append([]mgrField{{"Account", "Account", 10, "account"}, {"Description", "Descr", 20, "description"},
				{"Organization", "Org", 20, "organization"},
				{"Coordinators", "Coord Accounts", 20, "coordinators"}}, assocs...),
			rows: accountRows, selects: map[string]string{"name": "account", "names": "account", "account": "account",
				"accounts": "account", "cluster": "", "clusters": "",
				"description": "description", "descr": "description", "organization": "organization", "org": "organization",
				"parent": "parent", "user": "user", "users": "user"},
			bare: "account", hint: setValue},
		{names: []string{"association", "associations", "assoc", "assocs"}, standard: assocColumns, fields: assocs, rows: assocRows,
			selects: map[string]string{"user": "user", "users": "user", "account": "account", "accounts": "account", "acct": "account",
				"cluster": "", "clusters": "", "qos": "qos",
				"partition": "partition", "partitions": "partition", "id": "id", "ids": "id", "parent": "parent",
				"onlydefaults": ""}, bare: "user"},
		{names: []string{"cluster", "clusters"},
			standard: "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefaultQOS",
			clusters: "Federation,ID,Features,FedState", hint: setValue, fields: clusterFields(), rows: clusterRows,
			selects: map[string]string{"name": "cluster", "names": "cluster", "cluster": "cluster", "clusters": "cluster",
				"classification": "", "flags": "flags", "rpc": "rpc", "federation": "federation", "pluginidselect": ""}, bare: "cluster"},
		{names: []string{"event", "events"}, standard: "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User", fields: eventFields(),
			rows: eventRows, selects: map[string]string{"nodes": "node", "node": "node", "cluster": "cluster", "clusters": "cluster",
				"start": "", "end": "", "reason": "reason", "user": "user", "users": "user",
				"state": "state", "states": "state", "event": "event", "events": "event", "eventtype": "event", "all_time": "",
				"all_clusters": "",
				"condflags":    ""}, bare: "node"},
		{names: []string{"problem", "problems"}, standard: "Cluster,Account,User,Problem",
			fields: []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"Account", "Account", 10, "account"}, {"User", "User", 10, "user"},
				{"Problem", "Problem", 40, "problem"}}, rows: problemRows, bare: "account",
			selects: map[string]string{"cluster": "", "clusters": "", "user": "user", "users": "user", "account": "account",
				"accounts": "account"}},
		qosEntity(), tresEntity(),
		{names: []string{"reservation", "reservations", "resv"}, standard: "Cluster,Name%15,TRES%30,Start,End,UnusedWall", hint: setValue,
			fields: []mgrField{{"Cluster", "Cluster", 10, "cluster"}, {"Name", "Name", 10, "name"}, {"TRES", "TRES", 20, "tres"},
				{"Start", "TimeStart", 19, "start"}, {"End", "TimeEnd", 19, "end"}, {"TimeStart", "TimeStart", 19, "start"},
				{"TimeEnd", "TimeEnd", 19, "end"}, {"NodeNames", "NodeName", -15, "nodes"}, {"NodeName", "NodeName", -15, "nodes"},
				{"UnusedWall", "UnusedWall", 10, ""}, {"Associations", "Assocs", 10, ""}, {"Flags", "Flags", 20, "flags"},
				{"ID", "ID", 6, ""}},
			rows: reservationRows, bare: "name", selects: map[string]string{"cluster": "", "clusters": "", "name": "name", "names": "name",
				"nodes": "node", "start": "", "end": "", "id": "id"}},
		{names: []string{"resource", "resources"}, standard: "Name,Server,Type,Count,Allocated,ServerType", clusters: "Cluster,Allowed",
			hint: setPrinted,
			fields: []mgrField{{"Name", "Name", 10, ""}, {"Server", "Server", 10, ""}, {"Type", "Type", 8, ""}, {"Count", "Count", 6, ""},
				{"Allocated", "% Allocated", 11, ""}, {"ServerType", "ServerType", 10, ""},
				{"Cluster", "Cluster", 10, ""}, {"Allowed", "% Allowed", 10, ""}, {"PercentAllowed", "% Allowed", 10, ""},
				{"Description", "Descr", 20, ""}, {"Flags", "Flags", 20, ""}},
			rows: noRows, selects: anyOf("cluster", "name", "names", "server", "withclusters")},
		{names: []string{"transaction", "transactions", "txn"}, standard: "TimeStamp,Action,Actor,Where,Info",
			fields: []mgrField{{"TimeStamp", "Time", 19, ""}, {"Action", "Action", 20, ""}, {"Actor", "Actor", 10, ""},
				{"Where", "Where", 20, ""}, {"Info", "Info", 20, ""}},
			rows: noRows, selects: anyOf("start", "end", "actor", "action", "accounts", "users", "clusters", "withassocinfo")},
		{names: []string{"user", "users"}, standard: "User,DefaultAccount,AdminLevel", coords: "Coordinators", hint: setValue,
			assocs: "Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS",
			fields: append([]mgrField{{"User", "User", 10, "user"}, {"DefaultAccount", "Def Acct", 10, "defaultaccount"},
				{"AdminLevel", "Admin", 9, "admin"},
				{"DefaultWCKey", "Def WCKey", 10, ""}, {"Coordinators", "Coord Accounts", 20, "coordinators"}}, assocs...),
			rows: userRows, selects: map[string]string{"name": "user", "names": "user", "user": "user", "users": "user",
				"account": "account", "accounts": "account", "cluster": "", "clusters": "",
				"adminlevel": "admin", "defaultaccount": "defaultaccount", "qos": "qos"}, bare: "user"},
		{names: []string{"wckey", "wckeys"}, standard: "WCKey,Cluster,User",
			fields: []mgrField{{"WCKey", "WCKey", 10, ""}, {"Name", "WCKey", 10, ""}, {"Cluster", "Cluster", 10, ""},
				{"User", "User", 10, ""}, {"ID", "ID", 6, ""}},
			rows: noRows, selects: anyOf("user", "users", "cluster", "clusters", "name", "names")},
		{names: []string{"federation", "federations"}, standard: "Federation,Cluster,ID%2,Features,FedState", hint: setValue,
			fields: []mgrField{{"Federation", "Federation", 10, ""}, {"Cluster", "Cluster", 10, ""}, {"ID", "ID", 6, ""},
				{"Features", "Features", 20, ""}, {"FedState", "FedState", 12, ""},
				{"FedStateRaw", "FedStateRaw", 11, ""}, {"Name", "Name", 10, ""}},
			rows: noRows, selects: anyOf("name", "names", "cluster")},
	}
}

// anyOf returns conditions for entities without rows.
func anyOf(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = ""
	}
	return m
}

func qosEntity() mgrEntity {
	return mgrEntity{names: []string{"qos"}, fields: qosFields(), hint: setPrinted, bare: "qos",
		selects: map[string]string{"name": "qos", "names": "qos", "id": "id", "ids": "id", "description": "description",
			"descr": "description", "preemptmode": "mode"},
		standard: "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThreshold,UsageFactor,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall," +
			"MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES",
		rows: qosRows}
}

func tresEntity() mgrEntity {
	return mgrEntity{names: []string{"tres"}, standard: "Type,Name%15,ID", hint: setValue,
		fields: []mgrField{{"Type", "Type", 8, "type"}, {"Name", "Name", 10, "name"}, {"ID", "ID", 6, "id"}},
		rows:   tresRows, selects: map[string]string{"type": "type", "name": "name", "id": "id", "ids": "id"}, bare: "type"}
}

func noRows(context.Context, *run) ([]mgrRow, error) { return nil, nil }

func clusterRows(ctx context.Context, m *run) ([]mgrRow, error) {
	r := mgrRow{"cluster": m.env.ClusterName(), "account": acct.DefaultAccount, "Fairshare": "1", "qos": "normal", "qosid": "1",
		"rpc": "9728", "fedid": "0", "fedstate": "NA"}
	err := m.ask(ctx, func(c *client.Client) error {
		reply, err := c.Config(ctx, &msg.ConfigRequest{})
		for _, kv := range reply.GetPairs() {
			switch kv.GetKey() {
			case "SlurmctldHost[0]":
				r["host"] = strings.TrimSuffix(kv.GetValue()[strings.IndexByte(kv.GetValue(), '(')+1:], ")")
			case "SlurmctldPort":
				r["port"], _, _ = strings.Cut(kv.GetValue(), "-")
			}
		}
		if err != nil {
			return err
		}
		nodes, sum, err := m.nodes(ctx, c)
		r["nodecount"], r["nodes"], r["tres"] = strconv.Itoa(len(nodes)), hostlist.Fold(nodes), sum
		return err
	})
	return []mgrRow{r}, err
}

// nodes returns the names of all nodes, and the cluster's total resources, as accounting counts them.
func (m *run) nodes(ctx context.Context, c *client.Client) (names []string, sum string, err error) {
	total := map[string]uint64{"energy": 0, "fs/disk": 0, "pages": 0, "vmem": 0}
	err = view.EachNode(ctx, c, &msg.NodesRequest{}, view.Context(m.env, 0), func(n *msg.NodeRecord) {
		names = append(names, n.GetName())
		total["node"]++
		list, _ := tres.Parse(n.GetCfgTres())
		for _, it := range list {
			total[it.Name] += it.Count
		}
	})
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(total)) {
		unit := ""
		if name == "mem" {
			unit = "M"
		}
		parts = append(parts, name+"="+strconv.FormatUint(total[name], 10)+unit)
	}
	slices.Sort(names)
	return names, strings.Join(parts, ","), err
}

// clusterEvent is the registration of the cluster's resources, since the start of the controller.
func (m *run) clusterEvent(ctx context.Context, c *client.Client) (mgrRow, error) {
	names, sum, err := m.nodes(ctx, c)
	r := mgrRow{"cluster": m.env.ClusterName(), "tres": sum, "nodes": hostlist.Fold(names), "end": "Unknown", "event": "Cluster",
		"eventraw": "1", "stateraw": "0", "reason": "Cluster Registered TRES"}
	if err != nil {
		return r, err
	}
	reply, err := c.Config(ctx, &msg.ConfigRequest{})
	r["start"] = string(view.Context(m.env, 0).AppendTime(nil, reply.GetBootNs(), "Unknown"))
	r["duration"] = timespec.Clock(max(0, (reply.GetNowNs()-reply.GetBootNs())/1e9))
	return r, err
}

// eventRows returns the cluster, and the nodes that are out of service now. Past events are not kept.
func eventRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	fc := view.Context(m.env, 0)
	err = m.ask(ctx, func(c *client.Client) error {
		of, err := m.clusterEvent(ctx, c)
		if rows = append(rows, of); err != nil {
			return err
		}
		return view.EachNode(ctx, c, &msg.NodesRequest{}, fc, func(n *msg.NodeRecord) {
			state := ""
			switch {
			case n.GetStateFlags()&msg.NodeDrain != 0:
				state = "DRAIN"
			case n.GetState() == msg.NodeState_NODE_DOWN:
				state = "DOWN"
			default:
				return
			}
			user := n.GetReasonUser() + "(" + strconv.FormatUint(uint64(n.GetReasonUid()), 10) + ")"
			lasts := ""
			if since := n.GetReasonNs(); since != 0 {
				lasts = timespec.Clock(max(0, fc.Now.Unix()-since/1e9))
			}
			rows = append(rows, mgrRow{"cluster": m.env.ClusterName(), "node": n.GetName(),
				"start": string(fc.AppendTime(nil, n.GetReasonNs(), "Unknown")), "end": "Unknown",
				"state": state, "reason": n.GetReason(), "user": user, "event": "Node", "eventraw": "2",
				"stateraw": strconv.FormatUint(format.NodeStateNumber(n), 10),
				"duration": lasts})
		})
	})
	return rows, err
}

func tresRows(ctx context.Context, m *run) (rows []mgrRow, err error) {
	names := slices.Clone(doc.TresNames)
	err = m.ask(ctx, func(c *client.Client) error {
		return view.EachNode(ctx, c, &msg.NodesRequest{}, view.Context(m.env, 0), func(n *msg.NodeRecord) {
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
		if id = i + 1; i >= len(doc.TresNames) {
			id = 1001 + i - len(doc.TresNames)
		}
		class, rest, _ := strings.Cut(name, "/")
		rows = append(rows, mgrRow{"type": class, "name": rest, "id": strconv.Itoa(id), "spec": name})
	}
	return rows, err
}
