// Package sacctmgr is the command that shows and changes accounts, users, associations and QOS.
package sacctmgr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
)

// run is one invocation of sacctmgr.
type run struct {
	env                                     *command.Env
	noHeader, parsable, trailing, withAssoc bool
	tree, onlyDefaults, formatted           bool
	withCoords, withClusters                bool
	immediate, readonly, loading            bool
	own                                     bool // associations without inherited settings
	format                                  string
	where                                   []mgrCondition
}

// mgrCondition is one condition: a row is shown if its value is one of these.
type mgrCondition struct {
	key    string
	values []string
}

// Options are the command line of sacctmgr(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "usage"}, Help: "show this help"},
	{Name: opt.Name{Long: "immediate", Short: 'i'}, Help: "change without asking"},
	{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no header"},
	{Name: opt.Name{Long: "oneliner", Short: 'o'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "parsable", Short: 'p'}, Help: "end each field with |"},
	{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "separate fields with |"},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "readonly", Short: 'r'}, Help: "refuse to change anything"},
	{Name: opt.Name{Long: "associations", Short: 's'}, Help: "the same as withassoc"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Meta: "parser", Help: "refused; -P gives every field"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Meta: "parser", Help: "refused; -P gives every field"},
}

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: `sacctmgr [<OPTION>] [<COMMAND>]

Usage: sacctmgr [OPTIONS] show|list ENTITY [[where] KEY=VALUE,…] [withassoc] [format=FIELD[%[-]WIDTH],…]
       sacctmgr [OPTIONS] add account|user|qos|coordinator NAME,… [KEY=VALUE…]
       sacctmgr [OPTIONS] modify account|user|qos [NAME,…] [where KEY=VALUE…] set KEY[+|-]=VALUE…
       sacctmgr [OPTIONS] delete account|user|qos|coordinator [NAME,…] [where KEY=VALUE…]
       sacctmgr [OPTIONS] dump CLUSTER [file=FILE]
       sacctmgr [OPTIONS] load FILE [clean] [cluster=NAME]`,
		About: `Shows and changes accounts, users, associations and qualities of service. By default there is one account, "root", to
which everybody belongs, and one QOS, "normal".

<ENTITY> may be: account, association, cluster, event (nodes that are out of use), problem, qos, reservation,
          runawayjobs, tres, user; resource, transaction, wckey, federation (always empty).`,
		Title:   "    Valid <OPTION> values are:",
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "    Valid <COMMAND> values are", Text: `  list <ENTITY> [<SPECS>]  the rows of an entity
  show <ENTITY> [<SPECS>]  the same
  add, modify, delete      changes accounts, users, QOS and coordinators; asks first, unless -i is given
  dump, load               writes accounts and users into a file, and reads it; Slurm's format
`},
		},
		Examples: `  sacctmgr -nP show users withassoc format=account,qos where user=alice cluster=main
  sacctmgr show tres
  sacctmgr -i add account vision description="computer vision"
  sacctmgr -i add user alice,bob account=vision
  sacctmgr -i modify account vision set grptres=gres/gpu=8

`,
	}
}

// entityList is a real sacctmgr's message about an unknown entity.
const entityList = `Input line must include "Account", "Association", "Cluster", "Configuration",
"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",
"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey"
`

// Main runs one sacctmgr command line.
func Main(env *command.Env, args []string) int {
	m := &run{env: env}
	words, err := env.Options(Options[:], args, func(name string, _ opt.Hit) error {
		switch name {
		case "help", "usage":
			return env.Print(Page().Help())
		case "version":
			return env.PrintVersion()
		case "noheader":
			m.noHeader = true
		case "parsable":
			m.parsable, m.trailing = true, true
		case "parsable2":
			m.parsable, m.trailing = true, false
		case "associations":
			m.withAssoc = true
		case "immediate":
			m.immediate = true
		case "readonly":
			m.readonly = true
		case "json", "yaml":
			return env.Failf("--%s is not supported; -P gives every field", name)
		}
		return nil
	})
	if err != nil {
		return env.Exit(err)
	}
	if len(words) == 0 {
		env.Errorf("there is no interactive mode; give a command, for instance: sacctmgr show user")
		return 1
	}
	return m.verb(words[0], words[1:])
}

func (m *run) verb(verb string, words []string) int {
	switch lower := strings.ToLower(verb); {
	case cutWord("show", lower, 3) || cutWord("list", lower, 3):
		return m.show(words)
	// these affect the rest of an interactive session
	case slices.Contains([]string{"verbose", "quiet", "oneliner", "associations", "readonly"}, lower):
		return 0
	case lower == "help":
		fmt.Fprint(m.env.Stdout, Page().Help())
		return 0
	case lower == "version":
		_ = m.env.PrintVersion()
		return 0
	case lower == "exit", lower == "quit":
		return 0
	}
	if code, done := m.change(verb, words); done {
		return code
	}
	fmt.Fprintf(m.env.Stderr, "invalid keyword: %s\n", format.Escape(verb))
	return 1
}

func (m *run) show(words []string) int {
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
		m.env.Errorf("there is no slurmdbd; use sdiag for statistics")
		return 1
	}
	for _, e := range mgrEntities() {
		if name != "" && slices.ContainsFunc(e.names, func(n string) bool {
			return n == name || (len(name) >= 2 || name == "u") &&
				strings.HasPrefix(n, name)
		}) {
			return m.list(&e, words[1:])
		}
	}
	fmt.Fprint(m.env.Stderr, "No valid entity in list command\n"+entityList)
	return 1
}

// list prints the rows of an entity.
func (m *run) list(e *mgrEntity, words []string) int {
	if code := m.conditions(e, words); code != 0 {
		return code
	}
	spec := m.format
	if spec == "" && m.formatted {
		fmt.Fprintln(m.env.Stderr, "Unknown field ''")
		return 1
	}
	if spec == "" {
		spec = e.standard
		if m.withAssoc && e.assocs != "" {
			spec += "," + e.assocs
		}
		if m.withCoords && e.coords != "" {
			spec += "," + e.coords
		}
		if m.withClusters && e.clusters != "" {
			spec += "," + e.clusters
		}
	}
	columns, bad := mgrColumns(e, spec)
	if bad != "" {
		fmt.Fprintf(m.env.Stderr, "Unknown field '%s'\n", format.Escape(bad))
		return 1
	}
	rows, err := e.rows(context.Background(), m)
	if err != nil {
		return view.AccountingFailed(m.env, err)
	}
	m.indent(e, columns, rows)
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

// conditions reads the words after the entity.
func (m *run) conditions(e *mgrEntity, words []string) int {
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		lower := strings.ToLower(key)
		switch {
		case !has && slices.Contains([]string{"where", "set", "withdeleted", "withsubaccounts", "wckeys", "all_time", "all_clusters"},
			lower),
			!has && (cutWord("wolimits", lower, 3) || cutWord("rawqos", lower, 4) || cutWord("withrawqoslevel", lower, 5)):
		case !has && (cutWord("wopinfo", lower, 4) || cutWord("woplimits", lower, 4)):
			m.own = true
		case !has && lower == "tree":
			m.tree = true
		case !has && lower == "onlydefaults":
			m.onlyDefaults = true
		case !has && cutWord("withcoordinators", lower, 5):
			m.withCoords = true
		case !has && (lower == "withfed" || lower == "withclusters"):
			m.withClusters = true
		case !has && strings.HasPrefix("withassociations", lower) && len(lower) >= 5:
			m.withAssoc = true
		case lower == "format" || lower == "formats":
			m.format, m.formatted = value, true
		case !has:
			key := e.bare
			if key == "type" && strings.Contains(word, "/") { // sacctmgr show tres gres/gpu
				key = "spec"
			}
			m.where = append(m.where, mgrCondition{key, command.List(word)})
		default:
			column, known := e.selects[lower]
			if !known {
				fmt.Fprintf(m.env.Stderr, " Unknown condition: %s\n%s", format.Escape(word), e.hint)
				return 1
			}
			if column == "event" {
				if value = m.eventTypes(value); value == "" {
					return 1
				}
				if value == "Cluster" {
					e.standard = "Cluster,TRES,TimeStart,TimeEnd,ClusterNodes"
				}
			}
			m.condition(lower, column, value)
		}
	}
	return 0
}

// eventTypes expands types of events: "cl,node" is "Cluster,Node". It reports an invalid word and returns "".
func (m *run) eventTypes(value string) string {
	var types []string
	for _, word := range command.List(strings.Trim(value, `"'`)) {
		switch lower := strings.ToLower(word); {
		case cutWord("cluster", lower, 1):
			types = append(types, "Cluster")
		case cutWord("node", lower, 1):
			types = append(types, "Node")
		default:
			fmt.Fprintf(m.env.Stderr, " Unknown event type: '%s'  Valid events are Cluster and Node.\n", format.Escape(word))
			return ""
		}
	}
	return strings.Join(types, ",")
}

func (m *run) condition(name, column, value string) {
	if column != "" {
		m.where = append(m.where, mgrCondition{column, command.List(strings.Trim(value, `"'`))})
	} else if strings.HasPrefix(name, "cluster") && !m.env.OwnCluster(value) {
		m.where = append(m.where, mgrCondition{"cluster", command.List(value)})
	}
}

// treeWidth is the width of the account column in a tree.
const treeWidth = -20

// indent formats associations as a tree, with users below their account. Lists of users have no tree, because they do not show
// accounts.
func (m *run) indent(e *mgrEntity, columns []acct.Head, rows []mgrRow) {
	if !m.tree || e.names[0] != "association" || slices.ContainsFunc(m.where, func(c mgrCondition) bool { return c.key == "user" }) {
		return
	}
	for i := range columns {
		if columns[i].Key == "account" {
			columns[i].Width, columns[i].Key = treeWidth, "leaf"
		}
	}
	for _, r := range rows {
		r["leaf"] = r["indent"] + r["account"]
	}
}

// cutWord reports whether a word is an abbreviation of another one, of at least least letters.
func cutWord(whole, word string, least int) bool {
	return len(word) >= least && strings.HasPrefix(whole, word)
}

func (m *run) wants(r mgrRow) bool {
	for _, c := range m.where {
		if !slices.ContainsFunc(c.values, func(v string) bool {
			has := r[c.key]
			if c.key == "account" || c.key == "qos" { // a user may have several
				return slices.ContainsFunc(command.List(has), func(h string) bool { return strings.EqualFold(v, h) })
			}
			return strings.EqualFold(v, has) || c.key == "admin" && cutWord(strings.ToLower(r[c.key]), strings.ToLower(v), 2)
		}) {
			return false
		}
	}
	return true
}

// mgrColumns reads a list of fields, "user%-20,account"; names may be abbreviated.
func mgrColumns(e *mgrEntity, spec string) (columns []acct.Head, bad string) {
	for _, word := range command.List(spec) {
		name, width, sized := strings.Cut(word, "%")
		i := slices.IndexFunc(e.fields, func(f mgrField) bool { return strings.EqualFold(f.name, name) })
		if i < 0 {
			i = slices.IndexFunc(e.fields, func(f mgrField) bool {
				return len(name) <= len(f.name) &&
					strings.EqualFold(f.name[:len(name)], name)
			})
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
func (m *run) ask(ctx context.Context, f func(*client.Client) error) error {
	c, err := m.env.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return f(c)
}

// runaway lists jobs that are active in accounting but unknown to the controller. There are none unless the state was restored from
// an older backup.
func (m *run) runaway() int {
	found := 0
	err := view.EachAttempt(m.env, &msg.AccountingRequest{Runaway: true}, view.AttemptContext(m.env),
		func(c *acct.Context, j *msg.JobRecord) bool {
			if found++; found == 1 {
				fmt.Fprintf(m.env.Stdout,
					"NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time in the "+
						"database\n%-12s %10s %10s %10s %10s %19s %19s \n",
					"ID", "Name", "Partition", "Cluster", "State", "TimeStart", "TimeEnd")
			}
			fmt.Fprintf(m.env.Stdout, "%-12s %10.10s %10.10s %10.10s %10.10s %19s %19s \n", acct.ID(c, j),
				format.Escape(j.GetSpec().GetName()), format.Escape(j.GetPartition()), c.Cluster,
				strings.TrimPrefix(j.GetState().String(), "JOB_"), c.AppendTime(nil, j.GetStartNs(), "Unknown"), "Unknown")
			return true
		})
	if err != nil {
		return view.AccountingFailed(m.env, err)
	}
	if found == 0 {
		fmt.Fprintf(m.env.Stdout, "Runaway Jobs: No runaway jobs found on cluster %s\n", m.env.ClusterName())
	}
	return 0
}

// configKeys are the lines of sacctmgr show configuration, in the spelling and order of a real sacctmgr.
var configKeys = []string{"AccountingStorageBackupHost ", "AccountingStorageHost ", "AccountingStorageParameters",
	"AccountingStoragePass ", "AccountingStoragePort ",
	"AccountingStorageType ", "AccountingStorageUser ", "AuthType", "MessageTimeout", "PluginDir", "PrivateData", "SlurmUserId",
	"SLURM_CONF", "SLURM_VERSION",
	"TCPTimeout", "TrackWCKey"}

// config prints the part of the configuration that concerns accounting. There is no database daemon whose configuration would
// follow.
func (m *run) config() int {
	ctx := context.Background()
	err := m.ask(ctx, func(c *client.Client) error {
		reply, err := c.Config(ctx, &msg.ConfigRequest{})
		if err != nil {
			return err
		}
		fmt.Fprintf(m.env.Stdout, "Configuration data as of %s\n", view.Context(m.env, reply.GetNowNs()).AppendTime(nil, reply.GetNowNs(),
			""))
		values := map[string]string{}
		for _, kv := range reply.GetPairs() {
			values[kv.GetKey()] = kv.GetValue()
		}
		for _, k := range configKeys {
			name, key := k, k
			if k == "SlurmUserId" { // named SlurmUser in scontrol show config
				key = "SlurmUser"
			}
			fmt.Fprintf(m.env.Stdout, "%-22s = %s\n", name, format.Escape(cmp.Or(values[strings.TrimSpace(key)], "(null)")))
		}
		return nil
	})
	if err != nil {
		return view.AccountingFailed(m.env, err)
	}
	return 0
}
