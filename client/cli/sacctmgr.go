package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// sacctmgrRun is one sacctmgr command line.
type sacctmgrRun struct {
	env                                     *Env
	noHeader, parsable, trailing, withAssoc bool
	format                                  string
	where                                   []mgrCondition
}

// mgrCondition is one condition: a row is shown when its value is one of these.
type mgrCondition struct {
	key    string
	values []string
}

var sacctmgrNames = []opt.Name{
	{Long: "help", Short: 'h'}, {Long: "usage"}, {Long: "immediate", Short: 'i'}, {Long: "noheader", Short: 'n'}, {Long: "oneliner", Short: 'o'},
	{Long: "parsable", Short: 'p'}, {Long: "parsable2", Short: 'P'}, {Long: "quiet", Short: 'Q'}, {Long: "readonly", Short: 'r'}, {Long: "associations", Short: 's'},
	{Long: "verbose", Short: 'v'}, {Long: "version", Short: 'V'}, {Long: "json", Arg: opt.Optional}, {Long: "yaml", Arg: opt.Optional},
}

const sacctmgrHelp = `Usage: sacctmgr [OPTIONS...] show|list ENTITY [[where] KEY=VALUE,…] [withassoc] [format=FIELD[%[-]WIDTH],…]

Shows accounts, users, associations, qualities of service and the like. There is one account, "root", to which everybody belongs, and
one QOS, "normal"; they cannot be changed. Limits are set by partition, in slurm.conf.

Entities: account, association, cluster, event (nodes that are out of use), qos, runawayjobs, tres, user;
          problem, reservation, resource, transaction, wckey, federation (always empty).

  -n, --noheader   no header                 -p, --parsable     fields with | behind them
  -P, --parsable2  fields with | between     -s, --associations the same as withassoc
  -i, -Q, -r, -v   accepted                  -V, --version      versions

Examples:
  sacctmgr -nP show users withassoc format=account,qos where user=alice cluster=main
  sacctmgr show tres
`

// entityList is what a real sacctmgr says of an entity that it does not know.
const entityList = `Input line must include "Account", "Association", "Cluster", "Configuration",
"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",
"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"
`

// sacctmgr runs one sacctmgr command line: its reading calls. Those that change something are refused by name.
func sacctmgr(env *Env, args []string) int {
	hits, words, err := opt.Scan(sacctmgrNames, args, true)
	if err != nil {
		return env.viewExit(err)
	}
	m := &sacctmgrRun{env: env}
	for _, h := range hits {
		switch canonical(&sacctmgrNames[h.Index]) {
		case "help", "usage":
			fmt.Fprint(env.Stdout, sacctmgrHelp)
			return 0
		case "version":
			_ = env.printVersion()
			return 0
		case "noheader":
			m.noHeader = true
		case "parsable":
			m.parsable, m.trailing = true, true
		case "parsable2":
			m.parsable, m.trailing = true, false
		case "associations":
			m.withAssoc = true
		case "json", "yaml":
			env.Errorf("--%s is not supported; -P gives every field", sacctmgrNames[h.Index].Long)
			return 1
		}
	}
	if len(words) == 0 {
		env.Errorf("there is no interactive mode; say what to show, for instance: sacctmgr show user")
		return 1
	}
	return m.verb(words[0], words[1:])
}

// changing are the verbs that change the database of a real one.
var changing = []string{"add", "create", "modify", "delete", "remove", "dump", "load", "archive", "clear", "reconfigure", "shutdown", "ping", "associations", "readonly"}

func (m *sacctmgrRun) verb(verb string, words []string) int {
	switch lower := strings.ToLower(verb); {
	case lower == "show" || lower == "list":
		return m.show(words)
	case lower == "help":
		fmt.Fprint(m.env.Stdout, sacctmgrHelp)
		return 0
	case lower == "version":
		_ = m.env.printVersion()
		return 0
	case lower == "exit", lower == "quit":
		return 0
	case slices.ContainsFunc(changing, func(c string) bool { return len(lower) > 1 && strings.HasPrefix(c, lower) }):
		m.env.Errorf("%s is not supported: accounts, users and QOS cannot be changed", format.Escape(verb))
		m.env.Errorf("everybody belongs to the account %q and uses the QOS normal; set limits with partitions in slurm.conf", acct.DefaultAccount)
		return 1
	}
	fmt.Fprintf(m.env.Stderr, "invalid keyword: %s\n", format.Escape(verb))
	return 1
}

func (m *sacctmgrRun) show(words []string) int {
	name := ""
	if len(words) > 0 {
		name = strings.ToLower(words[0])
	}
	switch {
	case name != "" && len(name) >= 2 && strings.HasPrefix("runawayjobs", name) || name == "orphans" || name == "lostjobs":
		return m.runaway()
	case len(name) >= 2 && strings.HasPrefix("configuration", name):
		return m.config()
	case len(name) >= 2 && strings.HasPrefix("stats", name):
		m.env.Errorf("there is no slurmdbd to have statistics of; use sdiag")
		return 1
	}
	for _, e := range mgrEntities() {
		if name != "" && slices.ContainsFunc(e.names, func(n string) bool { return n == name || len(name) >= 2 && strings.HasPrefix(n, name) }) {
			return m.list(&e, words[1:])
		}
	}
	fmt.Fprint(m.env.Stderr, "No valid entity in list command\n"+entityList)
	return 1
}

// list prints the rows of an entity.
func (m *sacctmgrRun) list(e *mgrEntity, words []string) int {
	if code := m.conditions(e, words); code != 0 {
		return code
	}
	spec := m.format
	if spec == "" {
		spec = e.standard
		if m.withAssoc && e.assocs != "" {
			spec += "," + e.assocs
		}
	}
	columns, bad := mgrColumns(e, spec)
	if bad != "" {
		fmt.Fprintf(m.env.Stderr, "Unknown field '%s'\n", format.Escape(bad))
		return 1
	}
	rows, err := e.rows(context.Background(), m)
	if err != nil {
		return m.env.sacctFailed(err)
	}
	t := &acct.Table{Parsable: m.parsable, Trailing: m.trailing, Separator: "|"}
	var b []byte
	if !m.noHeader {
		b = t.AppendHeads(b, columns)
	}
	for _, r := range rows {
		if m.wants(r) {
			values := make([]string, len(columns))
			for i, c := range columns {
				values[i] = r[c.Key]
			}
			b = t.AppendTexts(b, columns, values)
		}
	}
	if _, err := m.env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

// conditions reads what follows the entity.
func (m *sacctmgrRun) conditions(e *mgrEntity, words []string) int {
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		lower := strings.ToLower(key)
		switch {
		case !has && slices.Contains([]string{"where", "tree", "wopinfo", "wopi", "wopl", "withdeleted", "withsubaccounts", "rawqos", "withrawqoslevel", "withcoordinators",
			"withcoordinator", "withcoord", "wckeys", "onlydefaults", "all_time", "all_clusters", "withfed", "withclusters"}, lower):
		case !has && strings.HasPrefix("withassociations", lower) && len(lower) >= 5:
			m.withAssoc = true
		case lower == "format" || lower == "formats":
			m.format = value
		case lower == "set":
			fmt.Fprintln(m.env.Stderr, " Unknown condition: set")
			return 1
		case !has:
			m.where = append(m.where, mgrCondition{e.bare, list(word)})
		default:
			column, known := e.selects[lower]
			if !known {
				fmt.Fprintf(m.env.Stderr, " Unknown condition: %s\n Use keyword 'set' to modify value\n", format.Escape(word))
				return 1
			}
			m.condition(lower, column, value)
		}
	}
	return 0
}

func (m *sacctmgrRun) condition(name, column, value string) {
	if column != "" {
		m.where = append(m.where, mgrCondition{column, list(strings.Trim(value, `"'`))})
	} else if strings.HasPrefix(name, "cluster") && !ownCluster(m.env, value) {
		m.where = append(m.where, mgrCondition{"cluster", list(value)})
	}
}

func (m *sacctmgrRun) wants(r mgrRow) bool {
	for _, c := range m.where {
		if !slices.ContainsFunc(c.values, func(v string) bool { return strings.EqualFold(v, r[c.key]) }) {
			return false
		}
	}
	return true
}

// mgrColumns reads a list of fields, "user%-20,account"; a name may be cut.
func mgrColumns(e *mgrEntity, spec string) (columns []acct.Head, bad string) {
	for _, word := range list(spec) {
		name, width, sized := strings.Cut(word, "%")
		i := slices.IndexFunc(e.fields, func(f mgrField) bool { return strings.EqualFold(f.name, name) })
		if i < 0 {
			i = slices.IndexFunc(e.fields, func(f mgrField) bool { return len(name) <= len(f.name) && strings.EqualFold(f.name[:len(name)], name) })
		}
		if i < 0 {
			return nil, name
		}
		f := e.fields[i]
		if n, err := strconv.Atoi(width); sized && err == nil {
			f.width = n
		}
		columns = append(columns, acct.Head{Name: f.header, Width: f.width, Key: f.key})
	}
	return columns, ""
}

// ask runs f with a connection.
func (m *sacctmgrRun) ask(ctx context.Context, f func(*client.Client) error) error {
	c, err := m.env.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return f(c)
}

// runaway lists jobs that accounting has as active and the controller does not know: there are none, unless the state was restored from
// an older backup.
func (m *sacctmgrRun) runaway() int {
	o := &sacctOptions{request: pb.AccountingRequest{Runaway: true}}
	found := 0
	err := o.each(m.env, func(c *acct.Context, j *pb.JobRecord) bool {
		if found++; found == 1 {
			fmt.Fprintf(m.env.Stdout, "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time in the database\n%-12s %10s %10s %10s %10s %19s %19s \n",
				"ID", "Name", "Partition", "Cluster", "State", "TimeStart", "TimeEnd")
		}
		fmt.Fprintf(m.env.Stdout, "%-12s %10.10s %10.10s %10.10s %10.10s %19s %19s \n", acct.ID(c, j), format.Escape(j.GetSpec().GetName()), format.Escape(j.GetPartition()), c.Cluster,
			strings.TrimPrefix(j.GetState().String(), "JOB_"), c.AppendTime(nil, j.GetStartNs(), "Unknown"), "Unknown")
		return true
	})
	if err != nil {
		return m.env.sacctFailed(err)
	}
	if found == 0 {
		fmt.Fprintf(m.env.Stdout, "Runaway Jobs: No runaway jobs found on cluster %s\n", m.env.clusterName())
	}
	return 0
}

// config prints what of the configuration is about accounting.
func (m *sacctmgrRun) config() int {
	ctx := context.Background()
	err := m.ask(ctx, func(c *client.Client) error {
		reply, err := c.Config(ctx, &pb.ConfigRequest{})
		if err != nil {
			return err
		}
		fmt.Fprintf(m.env.Stdout, "Configuration data as of %s\n", m.env.formatContext(reply.GetNowNs()).AppendTime(nil, reply.GetNowNs(), ""))
		for _, kv := range reply.GetPairs() {
			if k := kv.GetKey(); strings.HasPrefix(k, "Accounting") || slices.Contains([]string{"AuthType", "MessageTimeout", "PluginDir", "PrivateData", "SlurmUser", "SLURM_CONF", "SLURM_VERSION",
				"TCPTimeout", "TrackWCKey", "JobAcctGatherFrequency"}, k) {
				fmt.Fprintf(m.env.Stdout, "%-22s = %s\n", k, format.Escape(kv.GetValue()))
			}
		}
		return nil
	})
	if err != nil {
		return m.env.sacctFailed(err)
	}
	return 0
}
