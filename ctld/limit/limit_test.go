package limit

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// TestReasonsPerNode: the reasons of limits per node and of minimums have the names of Slurm 22.05.
func TestReasonsPerNode(t *testing.T) {
	perNode := func(r row) bool { return r.perNode }
	for _, table := range []struct {
		rows []row
		is   func(row) bool
		tres string
		want string
	}{
		{ofQOS, perNode, "cpu mem gres/gpu", "QOSMaxCpuPerNode QOSMaxMemoryPerNode QOSMaxGRESPerNode"},
		{ofUsers, perNode, "cpu mem gres/gpu", "AssocMaxCpuPerNode AssocMaxMemPerNode AssocMaxGRESPerNode"},
		{ofQOS, func(r row) bool { return r.least }, "cpu mem node gres/gpu:a100",
			"QOSMinCpuNotSatisfied QOSMinMemory QOSMinNode QOSMinGRES"},
	} {
		r := table.rows[slices.IndexFunc(table.rows, table.is)]
		var got []string
		for _, what := range strings.Fields(table.tres) {
			got = append(got, r.reason+r.suffix(what))
		}
		if s := strings.Join(got, " "); s != table.want {
			t.Errorf("%s, want %s", s, table.want)
		}
	}
}

// TestTablesNameSettings: every limit is a setting that sacctmgr knows to have an effect, of the kind that it is counted as; and every
// numeric setting that is said to have an effect is in a table, but for those that set the order of jobs.
func TestTablesNameSettings(t *testing.T) {
	known := map[string]bool{}
	for _, table := range []struct {
		on   accounts.On
		rows []row
	}{{accounts.QOS, ofQOS}, {accounts.User, ofUsers}, {accounts.Account, ofAccounts}, {accounts.User, ofAccounts}} {
		for _, r := range table.rows {
			s := accounts.Find(table.on, r.setting)
			if s == nil || s.Name != r.setting || !s.InEffect() || (s.Kind == accounts.Vector) != (r.what == "") {
				t.Errorf("%s: %+v", r.setting, s)
				continue
			}
			known[r.setting] = true
			if r.instead != "" && accounts.Find(accounts.User, r.instead) == nil {
				t.Errorf("%s: no setting %s", r.setting, r.instead)
			}
		}
	}
	for i := range ofUsers {
		if s := accounts.Find(accounts.User, ofUsers[i].setting); !s.Inherits {
			t.Errorf("%s is read as inherited, and is not", s.Name)
		}
	}
	for _, name := range []string{"Fairshare", "Priority", "GraceTime", "PreemptExemptTime", "UsageFactor", "DefaultTime",
		"GrpJobsAccrue", "MaxJobsAccrue", "MaxJobsAccruePerUser", "MaxJobsAccruePerAccount"} { // not here
		known[name] = true
	}
	for _, s := range accounts.Table {
		if s.Numeric() && s.InEffect() && !known[s.Name] {
			t.Errorf("%s is said to have an effect", s.Name)
		}
	}
}
