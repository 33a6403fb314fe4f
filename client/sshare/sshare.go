// Package sshare is the command that shows the shares and the usage of accounts and users.
package sshare

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/shares"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Options are the command line of sshare(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "all", Short: 'a'}, Help: "show all users"},
	{Name: opt.Name{Long: "accounts", Short: 'A', Arg: opt.Required}, Meta: "LIST", Help: "show these accounts only"},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Meta: "NAME", Help: "this cluster"},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Meta: "LIST", Help: "fields to show, each with an optional %WIDTH"},
	{Name: opt.Name{Long: "helpformat", Short: 'e'}, Help: "list the fields"},
	{Name: opt.Name{Long: "long", Short: 'l'}, Help: "also normalized usage, LevelFS and minutes of running jobs"},
	{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no header; -h means the same"},
	{Name: opt.Name{Long: "parsable", Short: 'p'}, Help: "end each field with |"},
	{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "separate fields with |"},
	{Name: opt.Name{Long: "partition", Short: 'm'}, Help: "also the partition of an association, which is always empty"},
	{Name: opt.Name{Long: "users", Short: 'u', Arg: opt.Required}, Meta: "LIST", Help: "show these users"},
	{Name: opt.Name{Long: "Users", Short: 'U'}, Help: "show users only, without their accounts"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print what was requested"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Short: 'h', Canon: "noheader"}},
	{Name: opt.Name{Long: "help"}, Help: "show this text"},
	{Name: opt.Name{Long: "usage"}, Help: "show this text"},
}

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: sshare [OPTION...]",
		About: `Shows shares and usage of accounts and users, the caller's by default. Usage is billing units times seconds, halved for each
PriorityDecayHalfLife that has passed. sacctmgr sets shares (fairshare=). Without accounts, everybody belongs to "root" with one
share, and accounts that jobs named with --account are shown below it.`,
		Options: Options[:],
		Examples: `  sshare -a -l
  sshare -n -P -o account,user,fairshare

`,
	}
}

type field struct {
	name  string
	width int // negative: left-aligned
	text  func(o *options, n *shares.Node) string
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 6, 64) }

// unlessRoot is empty for the account root, which has no share of anything.
func unlessRoot(f func(n *shares.Node) string) func(*options, *shares.Node) string {
	return func(_ *options, n *shares.Node) string {
		if n.Depth == 0 {
			return ""
		}
		return f(n)
	}
}

func level(n *shares.Node) string {
	if n.Parent {
		return ""
	}
	if math.IsInf(n.Level, 1) {
		return "inf"
	}
	return number(n.Level)
}

// fields returns the columns in the order of --helpformat, with the widths of sshare(1).
func fields() []field {
	none := func(*options, *shares.Node) string { return "" }
	return []field{
		{"Account", -20, func(o *options, n *shares.Node) string {
			if o.usersOnly {
				return n.Account
			}
			return strings.Repeat(" ", n.Depth) + n.Account
		}},
		{"Cluster", 10, func(o *options, _ *shares.Node) string { return o.env.ClusterName() }},
		{"EffectvUsage", 13, func(_ *options, n *shares.Node) string { return number(n.Effective) }},
		{"FairShare", 10, func(_ *options, n *shares.Node) string {
			if n.User == "" {
				return ""
			}
			return number(n.Factor)
		}},
		{"GrpTRESMins", 30, none}, {"GrpTRESRaw", 30, none},
		{"ID", 6, func(_ *options, n *shares.Node) string { return strconv.FormatInt(shares.ID(n), 10) }},
		{"LevelFS", 10, unlessRoot(level)},
		{"NormShares", 11, func(_ *options, n *shares.Node) string { return number(n.Norm) }},
		{"NormUsage", 11, unlessRoot(func(n *shares.Node) string { return number(n.NormUsage) })},
		{"Partition", 12, none},
		{"RawShares", 10, unlessRoot(shares.Raw)},
		{"RawUsage", 11, func(_ *options, n *shares.Node) string { return strconv.FormatInt(int64(n.Usage), 10) }},
		{"TRESRunMins", 30, func(o *options, n *shares.Node) string { return shares.LeftText(n, o.resources) }},
		{"User", 10, func(_ *options, n *shares.Node) string { return n.User }},
	}
}

const (
	standard = "account,user,rawshares,normshares,rawusage,effectvusage,fairshare"
	long     = "account,user,rawshares,normshares,rawusage,normusage,effectvusage,fairshare,levelfs,grptresmins,tresrunmins"
)

type options struct {
	env                                              *command.Env
	all, long, noHeader, parsable, trailing, verbose bool
	usersOnly, partition                             bool
	format                                           string
	users, accounts                                  []string
	resources                                        []string
}

// Main runs one sshare command line.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	columns, err := o.columns()
	if err != nil {
		return env.Exit(err)
	}
	ctx := context.Background()
	c, err := env.Dial(ctx)
	if err != nil {
		return env.Exit(view.LoadFailed(env, "Couldn't get shares from controller", err))
	}
	defer func() { _ = c.Close() }()
	tree, reply, err := shares.Load(ctx, c, o.users)
	if err != nil {
		return env.Exit(view.LoadFailed(env, "Couldn't get shares from controller", err))
	}
	if reply.GetWarning() != "" {
		env.Errorf("%s", reply.GetWarning())
	}
	o.resources = shares.Resources(reply)
	if o.verbose {
		o.say()
	}
	return o.print(tree, columns)
}

func parse(env *command.Env, args []string) (*options, error) {
	names := command.NamesOf(Options[:])
	hits, _, err := opt.Scan(names, args, true)
	if err != nil {
		return nil, err
	}
	o := &options{env: env}
	for _, h := range hits {
		if err := o.set(command.Canonical(&names[h.Index]), h.Value); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *options) set(name, value string) error {
	switch name {
	case "help", "usage":
		return o.env.Print(Page().Help())
	case "version":
		return o.env.PrintVersion()
	case "helpformat":
		var list []string
		for _, f := range fields() {
			list = append(list, f.name)
		}
		view.PrintNames(o.env, list, 17)
		return command.ExitCode(0)
	case "clusters":
		return o.env.CheckClusters(value)
	case "all":
		o.all = true
	case "accounts":
		o.accounts = command.List(value)
	case "format":
		o.format = value
	case "long":
		o.long = true
	case "noheader":
		o.noHeader = true
	case "parsable":
		o.parsable, o.trailing = true, true
	case "parsable2":
		o.parsable, o.trailing = true, false
	case "partition":
		o.partition = true
	case "users":
		o.users = command.List(value)
	case "Users":
		o.usersOnly = true
	case "verbose":
		o.verbose = true
	}
	return nil
}

// columns reads -o, or returns the columns of -l and -m.
func (o *options) columns() (heads []acct.Head, err error) {
	spec := o.format
	if spec == "" {
		if spec = standard; o.long {
			spec = long
		}
		if o.partition {
			spec = strings.Replace(spec, "user,", "user,partition,", 1)
		}
	}
	all := fields()
	for _, word := range command.List(spec) {
		name, width, sized := strings.Cut(word, "%")
		i := slices.IndexFunc(all, func(f field) bool { return len(name) <= len(f.name) && strings.EqualFold(f.name[:len(name)], name) })
		if i < 0 || name == "" {
			return nil, o.env.Failf("Invalid field requested: %q", name)
		}
		head := acct.Head{Name: all[i].name, Width: all[i].width, Key: all[i].name}
		if n, err := strconv.Atoi(width); sized && err == nil {
			head.Width = max(min(n, 1<<12), -1<<12)
		}
		heads = append(heads, head)
	}
	return heads, nil
}

func (o *options) say() {
	list := func(words []string, none string) string {
		if len(words) == 0 {
			return none
		}
		return strings.Join(words, "\n\t: ")
	}
	who := passwd.Self().Name
	if o.all {
		who = "all"
	}
	fmt.Fprintf(o.env.Stderr, "Users requested:\n\t: %s\nAccounts requested:\n\t: %s\n", list(o.users, who), list(o.accounts, "all"))
}

// wants reports whether to show a node.
func (o *options) wants(n *shares.Node, self string) bool {
	if len(o.accounts) > 0 && !slices.ContainsFunc(o.accounts, func(a string) bool { return strings.EqualFold(a, n.Account) }) {
		return false
	}
	switch {
	case n.User == "":
		return !o.usersOnly
	case len(o.users) > 0:
		return slices.Contains(o.users, n.User) || slices.Contains(o.users, strconv.FormatUint(uint64(n.UID), 10))
	}
	return o.all || n.User == self
}

func (o *options) print(tree *shares.Node, columns []acct.Head) int {
	t := &acct.Table{Parsable: o.parsable, Trailing: o.trailing, Separator: "|"}
	all, self := fields(), passwd.Self().Name
	var b []byte
	if !o.noHeader {
		b = t.AppendHeads(b, columns)
	}
	tree.Each(func(n *shares.Node) {
		if !o.wants(n, self) {
			return
		}
		texts := make([]string, len(columns))
		for i, c := range columns {
			f := all[slices.IndexFunc(all, func(f field) bool { return f.name == c.Key })]
			texts[i] = f.text(o, n)
		}
		b = t.AppendTexts(b, columns, texts)
	})
	if _, err := o.env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}
