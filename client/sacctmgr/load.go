package sacctmgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// maxFile bounds a file: its content is sent to the controller in one message.
const maxFile = 3 << 20

// file is a file being loaded.
type file struct {
	m        *run
	has      *rules // the controller's records, also by name
	assocs   map[assocKey]*msg.AssocRecord
	accounts map[string]*msg.AccountRecord
	users    map[string]*msg.UserRecord
	cluster  string
	parent   string          // "" before the cluster's line
	told     bool            // a parent was given, or its absence reported
	known    map[string]bool // accounts
	// lines are the changes requested by the lines of the file; later are those that must wait until all accounts and users exist.
	lines, later []*msg.ChangePolicyRequest
	tables       [4][]mgrRow     // new accounts, their associations, new users, their associations
	changes      strings.Builder // messages about existing records
	noted        map[string]bool // names already reported
}

type assocKey struct{ account, user, partition string }

func keyOf(a *msg.AssocRecord) assocKey {
	return assocKey{a.GetAccount(), a.GetUser(), a.GetPartition()}
}

// loadFile loads a file of sacctmgr dump into the controller, completely or not at all.
func (m *run) loadFile(words []string) int {
	name, clean := "", false
	m.loading = true
	f := &file{m: m, noted: map[string]bool{}}
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		value = strings.Trim(value, `"'`)
		switch lower := strings.ToLower(key); {
		case !has && cutWord("clean", lower, 3):
			clean = true
		case has && cutWord("clusters", lower, 3):
			f.cluster = value
		case has && !cutWord("file", lower, 1):
			fmt.Fprintf(m.env.Stderr, " Unknown option: %s\n", format.Escape(word))
			return 1
		case name != "":
			fmt.Fprintf(m.env.Stderr, " File name already set to %s\n", format.Escape(name))
			return 1
		case has:
			name = value
		default:
			name = word
		}
	}
	if name == "" {
		fmt.Fprintln(m.env.Stderr, " No filename given, specify one with file=''")
		return 1
	}
	text, err := readFile(name)
	if err != nil {
		fmt.Fprintf(m.env.Stderr, " Unable to read \"%s\": %s\n", format.Escape(name), format.Escape(command.SystemText(err)))
		return 1
	}
	ctx := context.Background()
	m.own = true
	if f.has, err = m.fetch(ctx); err != nil {
		return view.AccountingFailed(m.env, err)
	}
	return f.load(ctx, text, clean)
}

func readFile(name string) (string, error) {
	in, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("more than %d MiB; load it in parts", maxFile>>20)
	}
	return string(b), err
}

func (f *file) load(ctx context.Context, text string, clean bool) int {
	lines, err := accounts.ParseFile(text)
	f.known = map[string]bool{acct.DefaultAccount: true}
	f.assocs, f.accounts, f.users = map[assocKey]*msg.AssocRecord{}, map[string]*msg.AccountRecord{}, map[string]*msg.UserRecord{}
	for _, a := range f.has.assocs {
		f.assocs[keyOf(a)] = a
	}
	for _, a := range f.has.accounts {
		f.accounts[a.GetName()] = a
		f.known[a.GetName()] = !clean || f.known[a.GetName()]
	}
	for _, u := range f.has.users {
		f.users[u.GetName()] = u
	}
	for i := range lines {
		if code := f.line(&lines[i]); code != 0 {
			return code
		}
	}
	if bad := (*accounts.FileError)(nil); errors.As(err, &bad) {
		fmt.Fprintf(f.m.env.Stderr, " Misformatted line(%d): %s\n", bad.Number, format.Escape(bad.Text))
		f.m.env.Errorf("%s", format.Escape(bad.Why))
		return 1
	}
	o := &order{subject: subject{noun: "file"}, verb: "load", req: &msg.ChangePolicyRequest{Verb: msg.PolicyVerb_POLICY_LOAD, Clean: clean,
		Lines: append(f.lines, f.later...), CheckOnly: true}}
	reply, code := f.m.send(ctx, o)
	if code != 0 {
		return code
	}
	if o.empty(reply) {
		fmt.Fprintln(f.m.env.Stdout, " Nothing new added.")
		return 0
	}
	f.say()
	if clean {
		f.sayGone()
	}
	if !f.m.immediate && !f.m.confirmed() {
		return 0
	}
	o.req.CheckOnly = false
	_, code = f.m.send(ctx, o)
	return code
}

// line processes one line.
func (f *file) line(l *accounts.FileLine) int {
	m := f.m
	if f.parent == "" && l.Kind != "Cluster" {
		fmt.Fprint(m.env.Stderr, " You need to specify a cluster name first with 'Cluster - $NAME' in your file\n")
		return 1
	}
	if l.Kind != "Cluster" && l.Kind != "Parent" && !f.told {
		fmt.Fprint(m.env.Stdout, " No parent given creating off root, If incorrect specify 'Parent - name' before any children "+
			"in your file\n")
		f.told = true
	}
	name := strings.ToLower(l.Name)
	switch l.Kind {
	case "Cluster":
		return f.begin(l)
	case "Parent":
		if !f.known[name] {
			fmt.Fprintf(m.env.Stderr, " line(%d) You need to add this parent (%s) as a child before you can add children to it.\n",
				l.Number, format.Escape(l.Name))
			return 1
		}
		f.parent, f.told = name, true
		return 0
	case "Account":
		o := f.order("Account", l, name)
		f.known[name] = true
		return f.account(o, l)
	}
	return f.user(l)
}

// begin processes the cluster's line, which has the settings of the account root.
func (f *file) begin(l *accounts.FileLine) int {
	m := f.m
	switch {
	case f.parent != "":
		fmt.Fprint(m.env.Stderr, " You can only add one cluster at a time.\n Problem with requests: Unspecified error\n")
		return 1
	case f.cluster == "":
		f.cluster = l.Name
	}
	if f.cluster = strings.ToLower(f.cluster); !m.env.OwnCluster(f.cluster) {
		fmt.Fprintf(m.env.Stderr, " This cluster '%s' doesn't exist.\n", format.Escape(f.cluster))
		m.env.Errorf("this is cluster %[1]s; load the file with cluster=%[1]s", format.Escape(m.env.ClusterName()))
		return 1
	}
	fmt.Fprintf(m.env.Stdout, "For cluster %s\n", format.Escape(f.cluster))
	f.parent = acct.DefaultAccount
	if len(l.Options) == 0 {
		return 0
	}
	return f.account(f.order("Account", l, acct.DefaultAccount), l)
}

// order starts the change requested by a line.
func (f *file) order(entity string, l *accounts.FileLine, name string) *order {
	s := subjects[entity]
	return &order{subject: s, verb: "add", raw: map[string]string{}, req: &msg.ChangePolicyRequest{Entity: s.entity,
		Verb: msg.PolicyVerb_POLICY_ADD, Names: []string{name}, Line: uint32(l.Number)}}
}

func (f *file) account(o *order, l *accounts.FileLine) int {
	for _, opt := range l.Options {
		if code := f.option(o, l, opt); code != 0 {
			return code
		}
	}
	if o.req.Names[0] != acct.DefaultAccount {
		o.req.Set = append(o.req.Set, &msg.PolicySetting{Name: "Parent", Words: []string{f.parent}})
	}
	f.lines = append(f.lines, o.req)
	f.noteAccount(o.req)
	return 0
}

func (f *file) user(l *accounts.FileLine) int {
	o := f.order("User", l, l.Name)
	o.req.Accounts = []string{f.parent}
	who := f.order("User", l, l.Name) // default account and admin level: the account may come later in the file
	who.req.Verb = msg.PolicyVerb_POLICY_MODIFY
	coordinator := f.order("Coordinator", l, l.Name)
	for _, opt := range l.Options {
		to := o
		switch lower := strings.ToLower(opt.Key); {
		case lower == "partition":
			o.req.Partitions = []string{opt.Value}
			continue
		case lower == "coordinator":
			coordinator.req.Accounts = command.List(strings.ToLower(opt.Value))
			continue
		case lower == "defaultwckey", lower == "wckeys":
			continue // these do not exist here
		case lower == "defaultaccount", lower == "adminlevel":
			to = who
		}
		if code := f.option(to, l, opt); code != 0 {
			return code
		}
	}
	f.lines = append(f.lines, o.req)
	if len(who.req.Set) > 0 {
		f.later = append(f.later, who.req)
	}
	if len(coordinator.req.Accounts) > 0 {
		f.later = append(f.later, coordinator.req)
	}
	f.noteUser(o.req, who.req, coordinator.req)
	return 0
}

// option reads a setting of a line. In a list of QOS, "-x,+y" modifies the list inherited from the account above.
func (f *file) option(o *order, l *accounts.FileLine, opt accounts.FileOption) int {
	code := 0
	if def := accounts.Find(o.on, opt.Key); def != nil && def.Name == "QOS" {
		parts := map[string][]string{}
		for _, w := range command.List(opt.Value) {
			op := w[:len(w)-len(strings.TrimLeft(w, "+-"))]
			parts[op] = append(parts[op], w[len(op):])
		}
		for _, op := range []string{"", "+", "-"} { // at most one remains of each
			if words, ok := parts[op]; ok && code == 0 {
				code = f.m.setting(o, opt.Key+"="+opt.Value, opt.Key, op, strings.Join(words, ","))
				delete(parts, op)
			}
		}
		if code == 0 && len(parts) > 0 {
			f.m.unknown(f.m.env.Stderr, opt.Key+"="+opt.Value)
			code = 1
		}
	} else {
		code = f.m.setting(o, opt.Key+"="+opt.Value, opt.Key, "", opt.Value)
	}
	if code != 0 {
		fmt.Fprintf(f.m.env.Stderr, " Problem with line(%d)\n Problem with requests: Unspecified error\n", l.Number)
	}
	return code
}
