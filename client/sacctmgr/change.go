package sacctmgr

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// changer is a verb that changes something. Only Sluice's own records can be changed; for others an error names the entity, after
// the message of a real sacctmgr.
type changer struct {
	verb, called string // called is the verb's name in errors about its arguments
	entities     []string
}

var changing = []changer{
	{"add", "add", recorded}, {"create", "add", recorded}, {"delete", "delete", recorded}, {"remove", "delete", recorded},
	{"modify", "modify", []string{"Account", "Cluster", "Federation", "Job", "QOS", "Resource", "User"}},
	{"archive", "archive", []string{"Dump", "load"}}, {"clear", "list", []string{"Stats"}},
	{verb: "dump"}, {verb: "load"}, {verb: "reconfigure"}, {verb: "shutdown"},
}

// recorded are the entities that can be added and deleted.
var recorded = []string{"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", "User"}

// lists are the lists of entities in messages about a verb.
var lists = map[string]string{
	"add":     `"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User"`,
	"delete":  `"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User"`,
	"modify":  `"Account", "Cluster", "Federation", "Job", "QOS", "Resource" or "User"`,
	"archive": `"Dump", or "load"`,
	"list":    `"Stats"`,
}

// subject is an entity for which the controller has records.
type subject struct {
	entity msg.PolicyEntity
	on     accounts.On
	noun   string // for messages
}

var subjects = map[string]subject{
	"Account":     {msg.PolicyEntity_POLICY_ACCOUNT, accounts.Account, "account"},
	"User":        {msg.PolicyEntity_POLICY_USER, accounts.User, "user"},
	"QOS":         {msg.PolicyEntity_POLICY_QOS, accounts.QOS, "qos"},
	"Coordinator": {msg.PolicyEntity_POLICY_COORDINATOR, 0, "coordinator"},
}

// change runs a verb that changes something; done is false if it is not one.
func (m *run) change(verb string, words []string) (code int, done bool) {
	lower := strings.ToLower(verb)
	i := slices.IndexFunc(changing, func(c changer) bool { return cutWord(c.verb, lower, 3) })
	if i < 0 {
		return 0, false
	}
	c, entity := changing[i], ""
	for _, e := range c.entities {
		if len(words) > 0 && cutWord(strings.ToLower(e), strings.TrimSuffix(strings.ToLower(words[0]), "s"), 1) {
			entity = cmp.Or(entity, e)
		}
	}
	if len(words) > 0 && strings.EqualFold(words[0], "qos") && slices.Contains(c.entities, "QOS") {
		entity = "QOS"
	}
	if s, ok := subjects[entity]; ok && c.called != "archive" {
		return m.changeRecords(c.called, s, words[1:]), true
	}
	switch {
	case c.verb == "dump":
		return m.dump(words), true
	case c.verb == "load" && m.readonly:
		return m.refuseChange(), true
	case c.verb == "load":
		return m.loadFile(words), true
	case c.entities != nil && entity == "":
		include := "include"
		if c.called == "archive" {
			include += ","
		}
		fmt.Fprintf(m.env.Stderr, "No valid entity in %s command\nInput line must %s %s\n", c.called, include, lists[c.called])
	default:
		m.env.Errorf("%s is not supported: accounts, users, QOS and coordinators can be changed",
			format.Escape(strings.TrimSpace(verb+" "+strings.ToLower(entity))))
	}
	return 1, true
}

// order is one change as typed.
type order struct {
	subject
	verb string // add, modify, delete
	req  *msg.ChangePolicyRequest
	// raw are the settings as typed, by canonical name.
	raw map[string]string
}

func (m *run) refuseChange() int {
	fmt.Fprintf(m.env.Stderr, "Can't run this command in readonly mode.\n")
	return 1
}

func (m *run) changeRecords(verb string, s subject, words []string) int {
	o := &order{subject: s, verb: verb, raw: map[string]string{}, req: &msg.ChangePolicyRequest{Entity: s.entity,
		Verb: map[string]msg.PolicyVerb{"add": msg.PolicyVerb_POLICY_ADD, "modify": msg.PolicyVerb_POLICY_MODIFY,
			"delete": msg.PolicyVerb_POLICY_DELETE}[verb]}}
	if m.readonly {
		return m.refuseChange()
	}
	if code := m.read(o, words); code != 0 {
		return code
	}
	ctx := context.Background()
	o.req.CheckOnly = !m.immediate
	reply, code := m.send(ctx, o)
	switch {
	case code != 0:
		return code
	case o.empty(reply):
		return o.sayNothing(m.env)
	}
	o.say(m.env, reply)
	o.sayIdle(m.env)
	if o.req.CheckOnly && m.confirmed() {
		o.req.CheckOnly = false
		_, code = m.send(ctx, o)
	}
	return code
}

// send makes the call and reports errors.
func (m *run) send(ctx context.Context, o *order) (reply *msg.ChangePolicyReply, code int) {
	err := m.ask(ctx, func(c *client.Client) (err error) {
		reply, err = c.ChangePolicy(ctx, o.req)
		return err
	})
	p := client.ProblemOf(err)
	switch {
	case err == nil && len(reply.GetBusy()) > 0:
		fmt.Fprint(m.env.Stderr, " Error with request: Job(s) active, cancel job(s) before remove\n")
		for _, j := range reply.GetBusy() {
			fmt.Fprintf(m.env.Stderr, "  JobID = %-10s C = %-10.10s A = %-10.10s U = %-9.9s\n", j.GetJob(), m.env.ClusterName(),
				j.GetAccount(), j.GetUser())
		}
		return nil, 1
	case err == nil:
		return reply, 0
	case p == nil:
		return nil, view.AccountingFailed(m.env, err)
	case p.GetPhrase() != "" && o.verb == "load":
		fmt.Fprint(m.env.Stderr, " Your user does not have sufficient privileges to load files.\n")
		m.env.Errorf("%s", format.Escape(command.Diagnosis(p)))
	case p.GetPhrase() != "" && o.verb == "add":
		what := map[string]string{"qos": "QOS"}[o.noun]
		fmt.Fprintf(m.env.Stderr, " Problem adding %s: %s\n", cmp.Or(what, o.noun+"s"), p.GetPhrase())
		m.env.Errorf("%s", format.Escape(command.Diagnosis(p)))
	case p.GetPhrase() != "":
		m.env.Errorf("Your user doesn't have privilege to perform this action")
		fmt.Fprintf(m.env.Stderr, " Error with request: %s\n", p.GetPhrase())
		m.env.Errorf("%s", format.Escape(command.Diagnosis(p)))
	case p.GetCode() == badQOS:
		detail, line, _ := strings.Cut(p.GetDetail(), "\n")
		m.env.Errorf("%s", format.Escape(detail))
		if line != "" {
			fmt.Fprintf(m.env.Stderr, " %s\n", format.Escape(line))
		}
		if word, ok := o.raw["QOS"]; ok && o.on != accounts.QOS {
			m.unknown(m.env.Stderr, word)
		}
	default:
		if o.verb == "add" && strings.HasPrefix(p.GetDetail(), "This account") {
			fmt.Fprint(m.env.Stdout, " Nothing new added.\n")
		}
		to, margin := m.env.Stderr, " "
		switch {
		case strings.HasPrefix(p.GetDetail(), "Can't modify"): // as in Slurm
			to = m.env.Stdout
		case strings.HasPrefix(p.GetDetail(), "You gave a bad default"):
			margin = ""
		}
		for line := range strings.SplitSeq(p.GetDetail(), "\n") {
			fmt.Fprintf(to, "%s%s\n", margin, format.Escape(strings.TrimPrefix(line, " ")))
		}
	}
	return nil, 1
}

// badQOS is the code of a QOS that does not exist.
const badQOS = 2066

// unknown prints the message of a real sacctmgr about an invalid word.
func (m *run) unknown(to io.Writer, word string) {
	fmt.Fprintf(to, " Unknown option: %s\n", format.Escape(word))
	if !m.loading {
		fmt.Fprint(to, " Use keyword 'where' to modify condition\n")
	}
}

// confirmed asks for confirmation until it gets an answer or the input ends.
func (m *run) confirmed() bool {
	fmt.Fprint(m.env.Stdout, "Would you like to commit changes? (You have 30 seconds to decide)\n")
	in := bufio.NewScanner(m.env.Stdin)
	for {
		fmt.Fprint(m.env.Stdout, "(N/y): ")
		if !in.Scan() {
			fmt.Fprint(m.env.Stdout, "\n Changes Discarded\n")
			return false
		}
		fmt.Fprintln(m.env.Stdout)
		switch answer := strings.ToLower(strings.TrimSpace(in.Text())); answer {
		case "y", "yes":
			return true
		case "", "n", "no":
			fmt.Fprint(m.env.Stdout, " Changes Discarded\n")
			return false
		}
		fmt.Fprint(m.env.Stdout, "Y or N please\n")
	}
}
