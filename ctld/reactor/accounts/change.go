// Package accounts decides about accounts, users, associations and QOS: the add, modify and delete of sacctmgr. Pure.
//
// A change is one typed request (verb, entity, names, settings). All its rows are made in a draft (state.PolicyDraft), which becomes one
// event: a change is applied as a whole or refused. check_only gives the same answer and changes nothing; sacctmgr shows that before "Would
// you like to commit changes?". The event's log line is the audit log.
//
// Permissions depend on records, so they are decided here and not by the authorisation table. Root, SlurmUser and administrators may change
// everything; operators everything but QOS and admin levels; coordinators the users and sub-accounts of the accounts below theirs. These
// levels apply to accounts only: other users' jobs are still decided by uid (rpc.Peer.Operator).
//
//	change.go    the verbs and the permissions
//	add.go       new records
//	modify.go    settings of records
//	remove.go    deletion of records and their dependants
//	settings.go  one setting of one record
//	load.go      a file of records
package accounts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Change is one change of accounts, users or QOS; a reactor.Command.
type Change struct {
	User     string // login name of the caller
	Operator bool   // root or SlurmUser
	Request  *pb.ChangePolicyRequest
}

// edit is a change under way.
type edit struct {
	*state.PolicyDraft
	tx    *state.Tx
	old   *state.Policy
	c     *Change
	r     *pb.ChangePolicyRequest
	level pb.AdminLevel
	reply *pb.ChangePolicyReply
}

// Handle applies the whole change, or refuses it. The reply is a *pb.ChangePolicyReply; if it has Busy, nothing was changed.
func (c Change) Handle(tx *state.Tx) any {
	e := &edit{tx: tx, old: tx.Policy(), c: &c, r: c.Request, level: pb.AdminLevel_ADMIN_ADMINISTRATOR, reply: &pb.ChangePolicyReply{}}
	tx.Spend(len(e.old.Assocs()) / 100)
	if !c.Operator {
		e.level = e.old.User(c.User).GetLevel()
	}
	if p := e.checkRequest(); p != nil {
		return p
	}
	e.PolicyDraft = e.old.Draft()
	if p := e.carryOut(); p != nil {
		return p
	}
	if len(e.reply.Busy) == 0 && e.Changed() && !e.r.CheckOnly {
		tx.Emit(state.PolicyChanged{Draft: e.PolicyDraft, By: c.User, What: e.what()})
	}
	return e.reply
}

func (e *edit) carryOut() *pb.Problem {
	if e.r.Verb == pb.PolicyVerb_POLICY_LOAD {
		return e.load()
	}
	type key struct {
		verb   pb.PolicyVerb
		entity pb.PolicyEntity
	}
	f, ok := map[key]func() *pb.Problem{
		{pb.PolicyVerb_POLICY_ADD, pb.PolicyEntity_POLICY_ACCOUNT}:        e.addAccounts,
		{pb.PolicyVerb_POLICY_ADD, pb.PolicyEntity_POLICY_USER}:           e.addUsers,
		{pb.PolicyVerb_POLICY_ADD, pb.PolicyEntity_POLICY_QOS}:            e.addQOS,
		{pb.PolicyVerb_POLICY_ADD, pb.PolicyEntity_POLICY_COORDINATOR}:    func() *pb.Problem { return e.coordinators(true) },
		{pb.PolicyVerb_POLICY_MODIFY, pb.PolicyEntity_POLICY_ACCOUNT}:     e.modifyAccounts,
		{pb.PolicyVerb_POLICY_MODIFY, pb.PolicyEntity_POLICY_USER}:        e.modifyUsers,
		{pb.PolicyVerb_POLICY_MODIFY, pb.PolicyEntity_POLICY_QOS}:         e.modifyQOS,
		{pb.PolicyVerb_POLICY_DELETE, pb.PolicyEntity_POLICY_ACCOUNT}:     e.deleteAccounts,
		{pb.PolicyVerb_POLICY_DELETE, pb.PolicyEntity_POLICY_USER}:        e.deleteUsers,
		{pb.PolicyVerb_POLICY_DELETE, pb.PolicyEntity_POLICY_QOS}:         e.deleteQOS,
		{pb.PolicyVerb_POLICY_DELETE, pb.PolicyEntity_POLICY_COORDINATOR}: func() *pb.Problem { return e.coordinators(false) },
	}[key{e.r.Verb, e.r.Entity}]
	if !ok {
		return pb.NewProblem(pb.CodeNotSupported, "cannot %s %s", word(e.r.Verb), word(e.r.Entity))
	}
	return f()
}

// checkRequest refuses invalid names and settings, and converts the names of accounts and QOS to lower case, as Slurm does.
func (e *edit) checkRequest() *pb.Problem {
	r := e.r
	lower := [][]string{r.Accounts, r.Parents}
	if r.Entity == pb.PolicyEntity_POLICY_ACCOUNT || r.Entity == pb.PolicyEntity_POLICY_QOS {
		lower = append(lower, r.Names)
	}
	for _, list := range lower {
		for i := range list {
			list[i] = strings.ToLower(list[i])
		}
	}
	for _, list := range [][]string{r.Names, r.Accounts, r.Parents, r.Partitions} {
		for _, name := range list {
			if why := accounts.BadName(name); why != "" {
				return refusal("%.40q cannot be a name: %s", name, why)
			}
		}
	}
	if r.Verb == pb.PolicyVerb_POLICY_ADD {
		if len(r.Names) == 0 {
			return refusal("Need name of %s to add.", word(r.Entity))
		}
		for _, name := range r.Partitions {
			if e.tx.Partition(name) == nil {
				return refusal("There is no partition '%s'.", name)
			}
		}
	}
	for _, s := range r.Set {
		if p := e.checkSetting(s); p != nil {
			return p
		}
	}
	return nil
}

// refusal makes a refusal without a code's phrase. Where Slurm has a message, the text is Slurm's.
func refusal(format string, args ...any) *pb.Problem {
	p := pb.NewProblem(pb.CodeInvalidAccount, format, args...)
	p.Phrase = ""
	return p
}

func denied(format string, args ...any) *pb.Problem {
	return pb.NewProblem(pb.CodeAccessDenied, format, args...)
}

func word(v fmt.Stringer) string { return strings.ToLower(strings.TrimPrefix(v.String(), "POLICY_")) }

// what returns the log attributes of the change.
func (e *edit) what() []any {
	out := []any{"verb", word(e.r.Verb), "entity", word(e.r.Entity)}
	list := func(key string, names []string) {
		if len(names) > 0 {
			out = append(out, key, shortened(names))
		}
	}
	list("names", e.reply.Names)
	var assocs []string
	for _, a := range e.reply.Assocs {
		name := a.Account
		if a.User != "" {
			name = a.User + "@" + name
		}
		if a.Partition != "" {
			name += "/" + a.Partition
		}
		assocs = append(assocs, name)
	}
	list("associations", assocs)
	var set []string
	for _, s := range e.r.Set {
		set = append(set, settingText(s))
	}
	list("set", set)
	return out
}

// maxLogged bounds a list in a line of the log.
const maxLogged = 20

func shortened(list []string) string {
	if len(list) > maxLogged {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxLogged], " "), len(list)-maxLogged)
	}
	return strings.Join(list, " ")
}

// needs refuses callers below an admin level.
func (e *edit) needs(least pb.AdminLevel) *pb.Problem {
	if e.level >= least {
		return nil
	}
	if least == pb.AdminLevel_ADMIN_ADMINISTRATOR {
		return denied("this is for root, SlurmUser and administrators (AdminLevel); you are %s", e.c.User)
	}
	return denied("this is for operators (AdminLevel) and coordinators of the account; you are %s", e.c.User)
}

// mayManage refuses callers who are neither operators nor coordinators of the account or of one above it. own = false: only of one above
// it.
func (e *edit) mayManage(account string, own bool) *pb.Problem {
	if e.level >= pb.AdminLevel_ADMIN_OPERATOR {
		return nil
	}
	for a := range e.old.Chain(e.old.Assoc("", account, "")) {
		if (own || a.Account != account) && slices.Contains(e.old.Account(a.Account).GetCoordinators(), e.c.User) {
			return nil
		}
	}
	return e.needs(pb.AdminLevel_ADMIN_OPERATOR)
}

// busy notes active jobs of associations that would be deleted, and reports whether there are any.
func (e *edit) busy(of func(j *pb.JobRecord) bool) bool {
	for j := range e.tx.Jobs().All() {
		if state.Active(j) && of(j) {
			if len(e.reply.Busy) == maxBusy {
				break
			}
			e.reply.Busy = append(e.reply.Busy, &pb.PolicyJob{Job: state.JobName(j), Account: state.AccountOf(j.Spec), User: j.Spec.User})
		}
	}
	e.tx.Spend(e.tx.Jobs().Len())
	return len(e.reply.Busy) > 0
}

// maxBusy bounds the number of such jobs in the reply.
const maxBusy = 100
