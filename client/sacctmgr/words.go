package sacctmgr

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// read parses the words of a change: names, conditions (where) and settings (set). With add, all words are settings.
func (m *run) read(o *order, words []string) int {
	setting, saidSet := o.verb == "add", false
	for _, word := range words {
		switch lower := strings.ToLower(word); {
		case lower == "where":
			setting = false
			continue
		case lower == "set":
			setting, saidSet = true, true
			continue
		}
		key, value, has := strings.Cut(word, "=")
		bare, op := strings.TrimRight(key, "+-"), ""
		if bare != key && has {
			op = key[len(bare):]
		}
		lower := strings.ToLower(bare)
		value = strings.Trim(value, `"'`)
		switch {
		case !has && setting && saidSet:
			m.unknown(m.env.Stderr, word)
			return 1
		case !has:
			o.req.Names = append(o.req.Names, list(word)...)
		case (!setting || o.verb == "add") && o.condition(lower, value):
		case lower == "cluster" || lower == "clusters":
			if !m.env.OwnCluster(value) {
				fmt.Fprintf(m.env.Stderr, " This cluster '%s' doesn't exist.\n        Contact your admin to add it to accounting.\n",
					format.Escape(value))
				return 1
			}
		case !setting:
			fmt.Fprintf(m.env.Stderr, " Unknown condition: %s\n Use keyword 'set' to modify value\n", format.Escape(word))
			return 1
		default:
			if code := m.setting(o, word, bare, op, value); code != 0 {
				return code
			}
		}
	}
	return m.complete(o)
}

// condition reads a word that selects records.
func (o *order) condition(key, value string) bool {
	users := o.noun == "user" || o.noun == "coordinator"
	switch {
	case slices.Contains([]string{"name", "names"}, key), users && (key == "user" || key == "users"),
		o.noun == "account" && slices.Contains([]string{"account", "accounts", "acct"}, key):
		o.req.Names = append(o.req.Names, list(value)...)
	case users && slices.Contains([]string{"account", "accounts", "acct"}, key):
		o.req.Accounts = append(o.req.Accounts, list(value)...)
	case users && (key == "partition" || key == "partitions"):
		o.req.Partitions = append(o.req.Partitions, list(value)...)
	case o.noun == "account" && key == "parent" && o.verb != "add":
		o.req.Parents = append(o.req.Parents, list(value)...)
	default:
		return false
	}
	return true
}

// list reads names separated by commas; an empty list is one empty name, which the controller rejects.
func list(value string) []string {
	if names := command.List(value); len(names) > 0 {
		return names
	}
	return []string{""}
}

// setting reads a word that sets a value.
func (m *run) setting(o *order, word, name, op, value string) int {
	def := accounts.Find(o.on, name)
	to := m.env.Stderr
	if o.noun == "qos" {
		to = m.env.Stdout // as Slurm does for a QOS
	}
	if def == nil || op != "" && (def.Kind != accounts.List || len(op) != 1) {
		m.unknown(to, word)
		return 1
	}
	s := &msg.PolicySetting{Name: def.Name, Op: op}
	o.raw[def.Name] = word
	switch {
	case def.Numeric():
		values, err := def.Parse(value)
		if err != nil {
			return m.badValue(o, def, word, value, err)
		}
		for _, v := range values {
			s.Values = append(s.Values, &msg.PolicyValue{Name: def.Name, Tres: v.TRES, Value: v.N})
		}
	case def.Kind == accounts.List:
		s.Words = command.List(value)
		if value == "-1" {
			s.Words = nil
		}
		if def.Name == "Flags" && !m.flags(s, value) {
			return 1
		}
	case def.Kind == accounts.Week:
		h, err := accounts.ParseHours(strings.TrimPrefix(value, "-1"))
		if err != nil {
			m.env.Errorf("%s: %s", def.Name, format.Escape(err.Error()))
			return 1
		}
		s.Words = []string{h.String()}
	case value == "-1" && (def.Name == "DefaultPartition" || def.Name == "DefaultGPUType"):
		s.Words = []string{""}
	default:
		s.Words = []string{value}
		if def.Name == "Description" || def.Name == "Organization" {
			s.Words[0] = strings.ToLower(value)
		}
	}
	o.req.Set = append(o.req.Set, s)
	return 0
}

// badValue reports an invalid number.
func (m *run) badValue(o *order, def *accounts.Setting, word, value string, err error) int {
	name := def.Name
	switch {
	case def.Name == "Fairshare":
		name = "FairShare"
	case def.Kind == accounts.Wall:
		fmt.Fprintf(m.env.Stderr, " Bad %s time format: %s\n", name, format.Escape(word))
	}
	if def.Kind != accounts.Wall && def.Kind != accounts.Vector {
		m.env.Errorf("Invalid value for %s (%s)", name, format.Escape(value))
	}
	m.env.Errorf("%s", format.Escape(err.Error()))
	if o.noun != "qos" {
		m.unknown(m.env.Stderr, word)
	}
	return 1
}

// flags converts the flags of a QOS to their canonical spelling and reports unknown ones.
func (m *run) flags(s *msg.PolicySetting, value string) bool {
	for i, w := range s.Words {
		j := slices.IndexFunc(accounts.Flags, func(f string) bool { return strings.EqualFold(f, w) })
		if j < 0 {
			fmt.Fprintf(m.env.Stdout, " Unknown QOS flag used in:\n  '%s'\n Valid QOS flags are\n  '%s'\n", format.Escape(value),
				strings.Join(accounts.Flags, ","))
			return false
		}
		s.Words[i] = accounts.Flags[j]
	}
	return true
}

// complete reports missing arguments.
func (m *run) complete(o *order) int {
	missing := ""
	switch r := o.req; {
	case o.noun == "coordinator" && o.verb == "add" && len(r.Names) == 0:
		missing = "You need to specify a user list here."
	case o.noun == "coordinator" && o.verb == "add" && len(r.Accounts) == 0:
		missing = "You need to specify a account list here."
	case o.verb == "add" && len(r.Names) == 0:
		missing = "Need name of " + o.noun + " to add."
	case o.verb == "add" && o.noun == "user" && len(r.Accounts) == 0:
		missing = "Need name of account to add user to."
	case o.verb == "modify" && len(r.Set) == 0:
		missing = "You didn't give me anything to set"
	case o.verb == "delete" && len(r.Names)+len(r.Accounts)+len(r.Partitions)+len(r.Parents) == 0:
		missing = "No conditions given to remove, not executing."
	case o.verb == "add" && slices.Contains(r.Names, ""):
		missing = "No blank names are allowed when adding."
	default:
		return 0
	}
	if slices.Contains(o.req.Names, "") {
		fmt.Fprint(m.env.Stdout, " Nothing new added.\n")
	}
	fmt.Fprintf(m.env.Stderr, " %s\n", missing)
	return 1
}

// sayIdle reports settings that are stored but have no effect yet.
func (o *order) sayIdle(env *command.Env) {
	var idle []string
	for _, s := range o.req.Set {
		if def := accounts.Find(o.on, s.GetName()); def != nil {
			idle = append(idle, def.Idle(s.GetWords())...)
		}
	}
	if len(idle) > 0 {
		fmt.Fprintf(env.Stderr, "%s: stored, but not enforced yet: %s\n", env.Name, strings.Join(idle, ", "))
	}
}

// empty reports whether the change had no effect.
func (o *order) empty(r *msg.ChangePolicyReply) bool {
	return len(r.GetNames())+len(r.GetAssocs()) == 0
}

// sayNothing reports that.
func (o *order) sayNothing(env *command.Env) int {
	text := map[string]string{"add": " Nothing new added.", "modify": " Nothing modified", "delete": " Nothing deleted"}[o.verb]
	if o.noun == "coordinator" {
		o.sayCoordinators(env.Stdout)
		if text = ""; o.verb == "delete" {
			text = " Nothing removed"
		}
	}
	if text == "" {
		return 0
	}
	fmt.Fprintln(env.Stdout, text)
	return 1
}

// say prints the changes made, or to be made.
func (o *order) say(env *command.Env, r *msg.ChangePolicyReply) {
	out, cluster := env.Stdout, env.ClusterName()
	names := func(title string, names []string) {
		fmt.Fprintln(out, title)
		for _, n := range names {
			fmt.Fprintf(out, "  %s\n", format.Escape(n))
		}
	}
	switch {
	case o.noun == "coordinator":
		o.sayCoordinators(out)
		if o.verb == "delete" {
			fmt.Fprint(out, " Removed Coordinators (sub accounts not listed)...\n")
			for _, a := range r.GetAssocs() {
				fmt.Fprintf(out, "  U = %-9.9s A = %-10.10s\n", a.GetUser(), a.GetAccount())
			}
		}
	case o.verb == "add":
		o.sayAdded(env, r, names)
	case o.verb == "modify":
		if len(r.GetNames()) > 0 {
			names(map[string]string{"account": " Modified accounts...", "user": " Modified users...", "qos": " Modified qos..."}[o.noun],
				r.GetNames())
		}
		if len(r.GetAssocs()) > 0 {
			fmt.Fprintf(out, " Modified %s associations...\n", o.noun)
			for _, a := range r.GetAssocs() {
				fmt.Fprintf(out, "  %s\n", assocText(cluster, a))
			}
		}
	case o.noun == "user" && len(r.GetAssocs()) > 0:
		fmt.Fprint(out, " Deleting user associations...\n")
		for _, a := range r.GetAssocs() {
			fmt.Fprintf(out, "  C = %-10.10s A = %-10.10s U = %-9.9s%s\n", cluster, a.GetAccount(), a.GetUser(), partition(a, " P = "))
		}
		if len(r.GetNames()) > 0 {
			names(" Deleting users (No Associations)...", r.GetNames())
		}
	default:
		names(map[string]string{"account": " Deleting accounts...", "user": " Deleting users...", "qos": " Deleting QOS(s)..."}[o.noun],
			r.GetNames())
	}
}

// assocText formats a modified association.
func assocText(cluster string, a *msg.AssocRecord) string {
	switch {
	case a.GetUser() != "":
		return fmt.Sprintf("C = %-10.10s A = %-20.20s U = %-9.9s%s", cluster, a.GetAccount(), a.GetUser(), partition(a, " P = "))
	case a.GetParent() != "":
		return fmt.Sprintf("C = %-10.10s A = %s of %s", cluster, a.GetAccount(), a.GetParent())
	}
	return fmt.Sprintf("C = %-10.10s A = %s", cluster, a.GetAccount())
}

// added formats the partition of a new association.
func added(a *msg.AssocRecord) string {
	if a.GetPartition() == "" {
		return ""
	}
	return fmt.Sprintf(" P = %-10.10s", a.GetPartition())
}

func partition(a *msg.AssocRecord, before string) string {
	if a.GetPartition() == "" {
		return ""
	}
	return before + a.GetPartition()
}

func (o *order) sayCoordinators(out io.Writer) {
	titles := []string{" Adding Coordinator User(s)", " To Account(s) and all sub-accounts"}
	if o.verb == "delete" {
		titles = []string{" Removing Coordinators with user name", " From Account(s)"}
	}
	for i, list := range [][]string{o.req.Names, o.req.Accounts} {
		if len(list) == 0 {
			continue
		}
		fmt.Fprintln(out, titles[i])
		for _, n := range list {
			fmt.Fprintf(out, "  %s\n", format.Escape(n))
		}
	}
}

// sayAdded prints new records, with their settings.
func (o *order) sayAdded(env *command.Env, r *msg.ChangePolicyReply, names func(string, []string)) {
	out, cluster := env.Stdout, env.ClusterName()
	if len(r.GetNames()) > 0 {
		names(map[string]string{"account": " Adding Account(s)", "user": " Adding User(s)", "qos": " Adding QOS(s)"}[o.noun], r.GetNames())
	}
	word := func(name, otherwise string) string {
		for _, s := range o.req.Set {
			if s.GetName() == name && len(s.GetWords()) > 0 {
				return s.GetWords()[0]
			}
		}
		return otherwise
	}
	switch o.noun {
	case "account":
		fmt.Fprintf(out, " Settings\n  Description     = %s\n  Organization    = %s\n Associations\n", word("Description", "Account Name"),
			word("Organization", "Parent/Account Name"))
		for _, a := range r.GetAssocs() {
			fmt.Fprintf(out, "  A = %-10.10s C = %-10.10s\n", a.GetAccount(), cluster)
		}
		if len(o.req.Set) > 0 {
			fmt.Fprint(out, " Settings\n")
			o.sayValues(out, "  %-14s= %s\n")
			fmt.Fprintf(out, "  %-14s= %s\n", "Parent", word("Parent", "root"))
		}
	case "user":
		if text := word("AdminLevel", ""); text != "" && len(r.GetNames()) > 0 {
			fmt.Fprintf(out, " Settings =\n  Admin Level     = %s\n", levelName(text))
		}
		fmt.Fprint(out, " Associations =\n")
		for _, a := range r.GetAssocs() {
			fmt.Fprintf(out, "  U = %-9.9s A = %-10.10s C = %-10.10s%s\n", a.GetUser(), a.GetAccount(), cluster, added(a))
		}
		fmt.Fprint(out, " Non Default Settings\n")
		o.sayValues(out, "  %-14s= %s\n")
	case "qos":
		fmt.Fprintf(out, " Settings\n  Description    = %s\n", word("Description", strings.Join(r.GetNames(), ",")))
		o.sayValues(out, "  %-24s = %s\n")
	}
}

func levelName(text string) string {
	for _, l := range levels {
		if len(text) > 1 && cutWord(strings.ToLower(l), strings.ToLower(text), 2) {
			return l
		}
	}
	return levels[0]
}

// sayValues prints the settings other than those of the record itself, by name.
func (o *order) sayValues(out io.Writer, form string) {
	set := slices.Clone(o.req.Set)
	slices.SortFunc(set, func(a, b *msg.PolicySetting) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, s := range set {
		def := accounts.Find(o.on, s.GetName())
		switch {
		case def == nil || slices.Contains([]string{"Description", "Organization", "Parent", "AdminLevel", "DefaultAccount"}, s.GetName()):
		case def.Numeric():
			var values []accounts.Value
			for _, v := range s.GetValues() {
				values = append(values, accounts.Value{TRES: v.GetTres(), N: v.GetValue()})
			}
			text := def.Show(values)
			switch {
			case text == "":
				text = "NONE"
			case def.Kind == accounts.Factor: // shorter than in columns
				text = text[:len(text)-2]
			}
			fmt.Fprintf(out, form, s.GetName(), text)
		default:
			fmt.Fprintf(out, form, s.GetName(), format.Escape(strings.Join(s.GetWords(), ",")))
		}
	}
}
