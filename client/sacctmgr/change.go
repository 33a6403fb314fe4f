package sacctmgr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
)

// changer is a verb that changes the database of a real one, with what may stand behind it.
type changer struct {
	verb, called string // and how it is called when what is behind it is wrong
	entities     []string
}

var changing = []changer{
	{"add", "add", recorded}, {"create", "add", recorded}, {"delete", "delete", recorded}, {"remove", "delete", recorded},
	{"modify", "modify", []string{"Account", "Cluster", "Federation", "Job", "QOS", "Resource", "User"}},
	{"archive", "archive", []string{"Dump", "load"}}, {"clear", "list", []string{"Stats"}},
	{verb: "dump"}, {verb: "load"}, {verb: "reconfigure"}, {verb: "shutdown"},
}

var recorded = []string{"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", "User"}

// lists are the entities of a verb in the words of a real sacctmgr.
var lists = map[string]string{
	"add":     `"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User"`,
	"delete":  `"Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User"`,
	"modify":  `"Account", "Cluster", "Federation", "Job", "QOS", "Resource" or "User"`,
	"archive": `"Dump", or "load"`,
	"list":    `"Stats"`,
}

// change refuses what would change the database, and in Slurm's words what no sacctmgr would take. It is false for any other verb.
func (m *run) change(verb string, words []string) bool {
	lower := strings.ToLower(verb)
	i := slices.IndexFunc(changing, func(c changer) bool { return cutWord(c.verb, lower, 3) })
	if i < 0 {
		return false
	}
	c := changing[i]
	known := len(words) > 0 && slices.ContainsFunc(c.entities, func(e string) bool {
		return cutWord(strings.ToLower(e), strings.TrimSuffix(strings.ToLower(words[0]), "s"), 1)
	})
	switch {
	case c.entities != nil && !known:
		include := "include"
		if c.called == "archive" {
			include += ","
		}
		fmt.Fprintf(m.env.Stderr, "No valid entity in %s command\nInput line must %s %s\n", c.called, include, lists[c.called])
	case c.verb == "dump" && len(words) == 0:
		fmt.Fprintln(m.env.Stderr, " We need a cluster to dump.")
	case c.verb == "load" && len(words) == 0:
		fmt.Fprintln(m.env.Stderr, " No filename given, specify one with file=''")
	default:
		m.env.Errorf("%s is not supported: accounts, users and QOS cannot be changed", format.Escape(verb))
		m.env.Errorf("everybody belongs to the account %q and uses the QOS normal; set limits with partitions in slurm.conf",
			acct.DefaultAccount)
	}
	return true
}
