package accounts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// preemptModes are the modes that a QOS can have.
var preemptModes = []string{"", "cluster", "off", "cancel", "requeue", "suspend", "gang"}

// checkSetting refuses settings that are not in the table, and invalid values.
func (e *edit) checkSetting(s *pb.PolicySetting) *pb.Problem {
	on := map[pb.PolicyEntity]accounts.On{pb.PolicyEntity_POLICY_ACCOUNT: accounts.Account, pb.PolicyEntity_POLICY_USER: accounts.User,
		pb.PolicyEntity_POLICY_QOS: accounts.QOS}[e.r.Entity]
	def := accounts.Find(on, s.Name)
	switch {
	case def == nil || def.Name != s.Name:
		return refusal("%.40q cannot be set for a %s", s.Name, word(e.r.Entity))
	case s.Op != "" && (def.Kind != accounts.List || s.Op != "+" && s.Op != "-"):
		return refusal("%s is not a list: %.2q= cannot be used with it", s.Name, s.Op)
	case def.Numeric():
		return checkValues(def, s)
	case def.Kind != accounts.List && len(s.Words) != 1:
		return refusal("%s takes one value", s.Name)
	}
	for i, w := range s.Words {
		if def.Kind == accounts.Week {
			h, err := accounts.ParseHours(w)
			if err != nil {
				return refusal("%s: %v", s.Name, err)
			}
			s.Words[i] = h.String()
			continue
		}
		if def.Kind == accounts.Text {
			if p := admit.Line(s.Name, w); p != nil {
				return p
			}
			s.Words[i] = accounts.Plain(w)
			continue
		}
		if why := accounts.BadName(w); why != "" && w != "" {
			return refusal("%s=%.40q: %s", s.Name, w, why)
		}
		if !slices.Contains([]string{"Flags", "DefaultPartition", "DefaultGPUType"}, s.Name) { // these are case-sensitive
			s.Words[i] = strings.ToLower(w)
		}
	}
	switch s.Name {
	case "Flags":
		for _, w := range s.Words {
			if !slices.Contains(accounts.Flags, w) {
				return refusal("unknown QOS flag %.40q; flags are %s", w, strings.Join(accounts.Flags, ","))
			}
		}
	case "PreemptMode":
		if !slices.Contains(preemptModes, s.Words[0]) {
			return refusal("Bad Preempt Mode given: preemptmode=%s", s.Words[0])
		}
	case "DefaultPartition":
		if w := s.Words[0]; w != "" && e.tx.Partition(w) == nil {
			return refusal("There is no partition '%s'.", w)
		}
	case "DefaultGPUType":
		if w := s.Words[0]; w != "" && !slices.ContainsFunc(e.tx.Nodes(), func(n *state.Node) bool { return n.HasGPUs(w) }) {
			return refusal("No node has GPUs of type '%s'.", w)
		}
	case "DefaultQOS":
		if w := s.Words[0]; w != "" && e.old.QOS(w) == nil {
			return refusal("You gave a bad default qos '%s'.  Use 'list qos' to get complete list.", w)
		}
	}
	return nil
}

func checkValues(def *accounts.Setting, s *pb.PolicySetting) *pb.Problem {
	for _, v := range s.Values {
		if err := def.Check(accounts.Value{TRES: v.Tres, N: v.Value}); v.Name != def.Name || err != nil {
			return refusal("%s: %.80q %v", s.Name, v.Tres, err)
		}
	}
	if len(s.Values) == 0 {
		return refusal("%s has no value", s.Name)
	}
	return nil
}

// levelOf parses AdminLevel as Slurm does: anything unknown is none.
func levelOf(text string) pb.AdminLevel {
	switch {
	case strings.HasPrefix(text, "op"):
		return pb.AdminLevel_ADMIN_OPERATOR
	case strings.HasPrefix(text, "ad"):
		return pb.AdminLevel_ADMIN_ADMINISTRATOR
	}
	return pb.AdminLevel_ADMIN_NONE
}

// wordOf returns the value of a setting that has one word; "" where it is not set.
func (e *edit) wordOf(name string) string {
	for _, s := range e.r.Set {
		if s.Name == name {
			return s.Words[0]
		}
	}
	return ""
}

// changed returns a list after applying a setting.
func changed(list []string, s *pb.PolicySetting) []string {
	var out []string
	if s.Op != "" {
		out = slices.DeleteFunc(slices.Clone(list), func(w string) bool { return slices.Contains(s.Words, w) })
	}
	if s.Op != "-" {
		out = append(out, s.Words...)
	}
	out = slices.DeleteFunc(out, func(w string) bool { return w == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// qosList returns a list of QOS after applying a setting. All of them must exist; a coordinator may only give an association QOS that the
// account above has.
func (e *edit) qosList(s *pb.PolicySetting, has []string, of *pb.AssocRecord) ([]string, *pb.Problem) {
	list := changed(has, s)
	for _, w := range list {
		if e.QOS(w) == nil {
			p := refusal("You gave a bad qos '%s'. Valid QOS's are %s", w, e.allQOS())
			p.Code = uint32(pb.CodeInvalidQOS)
			return nil, p
		}
		if of == nil || e.level >= pb.AdminLevel_ADMIN_OPERATOR || slices.Contains(has, w) {
			continue
		}
		above := e.Assoc("", of.Account, "")
		if of.User == "" {
			above = e.Assoc("", of.Parent, "")
		}
		if !slices.Contains(e.QOSOf(above), w) {
			return nil, denied("account %s may not use QOS %s, and a coordinator cannot give it", above.Account, w)
		}
	}
	if s.Op == "-" && len(list) == 0 && of != nil {
		return nil, refusal("An association needs a QOS; qos= gives it those of the account above.")
	}
	return list, nil
}

// allQOS names all QOS, the oldest first.
func (e *edit) allQOS() string {
	var all []string
	for _, q := range slices.SortedFunc(slices.Values(e.old.Qoses()), func(a, b *pb.QosRecord) int { return cmp.Compare(a.Id, b.Id) }) {
		all = append(all, q.Name)
	}
	return strings.Join(all, ",")
}

// checkDefault refuses a new default QOS that the association may not use.
func (e *edit) checkDefault(a, old *pb.AssocRecord) *pb.Problem {
	if w := e.wordOf("DefaultQOS"); w == "" || w == old.DefaultQos && slices.Equal(a.Qos, old.Qos) {
		return nil
	}
	allowed := a.Qos
	if len(allowed) == 0 {
		allowed = e.QOSOf(&pb.AssocRecord{User: a.User, Account: a.Account, Parent: a.Parent})
	}
	if slices.Contains(allowed, a.DefaultQos) {
		return nil
	}
	line := "A = " + a.Account
	if a.User != "" {
		line += " U = " + a.User
	}
	return refusal("These associations don't have access to their default qos.\n"+
		" Please give them access before they the default can be set to this.\n  DefQOS = %s %s", a.DefaultQos, line)
}

// withValues returns a list of values after applying a setting.
func withValues(list []*pb.PolicyValue, s *pb.PolicySetting) []*pb.PolicyValue {
	out := slices.Clone(list)
	for _, v := range s.Values {
		i, found := slices.BinarySearchFunc(out, v, func(a, b *pb.PolicyValue) int {
			return accounts.Compare(a.Name, a.Tres, b.Name, b.Tres)
		})
		switch {
		case v.Value == accounts.None && found:
			out = slices.Delete(out, i, i+1)
		case v.Value == accounts.None:
		case found:
			out[i] = v
		default:
			out = slices.Insert(out, i, v)
		}
	}
	return out
}

// settingText writes a setting for the log: "MaxJobs=3", "QOS+=high".
func settingText(s *pb.PolicySetting) string {
	text := s.Name + s.Op + "=" + strings.Join(s.Words, ",")
	if len(s.Values) == 0 {
		return text
	}
	def := accounts.Find(accounts.Assoc|accounts.QOS, s.Name)
	var values []accounts.Value
	for _, v := range s.Values {
		if v.Value == accounts.None {
			text += strings.TrimPrefix(v.Tres+"=none,", "=")
		} else {
			values = append(values, accounts.Value{TRES: v.Tres, N: v.Value})
		}
	}
	return strings.TrimSuffix(text+def.Show(values), ",")
}
