package sacctmgr

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// dumped are the numeric settings of an association in the order of Slurm's file, and their names there.
var dumped = [...]struct{ name, as string }{
	{"Fairshare", ""}, {"GrpTRESMins", ""}, {"GrpTRESRunMins", ""}, {"GrpTRES", ""}, {"GrpJobs", ""}, {"GrpJobsAccrue", ""},
	{"GrpSubmitJobs", ""}, {"GrpWall", ""}, {"MaxTRESMinsPerJob", ""}, {"MaxTRESPerJob", ""}, {"MaxTRESPerNode", ""}, {"MaxJobs", ""},
	{"MaxJobsAccrue", ""}, {"MaxSubmitJobs", ""}, {"MaxWall", "MaxWallDurationPerJob"}, {"MinPrioThreshold", ""}, {"Priority", ""},
	{"DefaultTime", ""},
}

// dumpHead explains the format of the file.
const dumpHead = `# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:FairShare=399:MaxWallDurationPerJob=40:Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY
# BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:FairShare=1:MaxWallDurationPerJob=1:Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# User - 'lipari':MaxTRESPerJob=node=2:MaxJobs=3:FairShare=1:MaxWallDurationPerJob=1
`

// dump writes the accounts and users of the cluster to a file for load.
func (m *run) dump(words []string) int {
	cluster, file := "", ""
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		value = strings.Trim(value, `"'`)
		name := value
		switch lower := strings.ToLower(key); {
		case has && cutWord("file", lower, 1):
			file = value
			continue
		case has && (cutWord("clusters", lower, 1) || cutWord("names", lower, 1)):
		case has:
			fmt.Fprintf(m.env.Stderr, " Unknown option: %s\n", format.Escape(word))
			return 1
		default:
			name = word
		}
		if cluster != "" {
			fmt.Fprintf(m.env.Stderr, " Can only do one cluster at a time.  Already doing %s\n", format.Escape(cluster))
			return 1
		}
		cluster = name
	}
	switch {
	case cluster == "":
		fmt.Fprintln(m.env.Stderr, " We need a cluster to dump.")
		return 1
	case !strings.EqualFold(cluster, m.env.ClusterName()):
		fmt.Fprintf(m.env.Stderr, " Cluster %s doesn't exist.\n", format.Escape(cluster))
		return 1
	case file == "":
		file = "./" + strings.ToLower(cluster) + ".cfg"
		fmt.Fprintf(m.env.Stdout, " No filename given, using %s.\n", format.Escape(file))
	}
	m.own = true
	r, err := m.fetch(context.Background())
	if err != nil {
		return view.AccountingFailed(m.env, err)
	}
	if err := os.WriteFile(file, r.appendFile([]byte(dumpHead), m.env.ClusterName()), 0o644); err != nil {
		fmt.Fprintf(m.env.Stderr, "Can't open file %s, %s\n", format.Escape(file), format.Escape(command.SystemText(err)))
		return 1
	}
	return 0
}

// appendFile writes all lines.
func (r *rules) appendFile(b []byte, cluster string) []byte {
	for _, a := range r.assocs {
		if a.GetUser() == "" && a.GetAccount() == acct.DefaultAccount {
			if a = clone(a); len(a.GetQos()) == 0 {
				a.Qos = []string{"normal"}
			}
			l := accounts.FileLine{Kind: "Cluster", Name: cluster, Options: assocOptions(a)}
			b = l.Append(b)
		}
	}
	return r.appendBelow(b, acct.DefaultAccount)
}

func clone(a *msg.AssocRecord) *msg.AssocRecord { c := *a; return &c }

// appendBelow writes the content of an account: its users, the accounts below it, then the content of these.
func (r *rules) appendBelow(b []byte, account string) []byte {
	var below []*msg.AssocRecord
	begun := false
	for _, a := range r.assocs { // users come first
		if a.GetUser() == "" && a.GetParent() != account || a.GetUser() != "" && a.GetAccount() != account {
			continue
		}
		if !begun {
			b = append(b, "Parent - "+accounts.Quoted(account)+"\n"...)
			begun = true
		}
		l := accounts.FileLine{Kind: "User", Name: a.GetUser(), Options: r.userOptions(a)}
		if a.GetUser() == "" {
			below = append(below, a)
			l = accounts.FileLine{Kind: "Account", Name: a.GetAccount(), Options: r.accountOptions(a)}
		}
		b = l.Append(b)
	}
	for _, a := range below {
		b = r.appendBelow(b, a.GetAccount())
	}
	return b
}

func (r *rules) accountOptions(a *msg.AssocRecord) (o []accounts.FileOption) {
	for _, rec := range r.accounts {
		if rec.GetName() == a.GetAccount() {
			o = append(o, accounts.FileOption{Key: "Description", Value: rec.GetDescription()},
				accounts.FileOption{Key: "Organization", Value: rec.GetOrganization()})
		}
	}
	return append(o, assocOptions(a)...)
}

func (r *rules) userOptions(a *msg.AssocRecord) (o []accounts.FileOption) {
	add := func(key, value string) {
		if value != "" {
			o = append(o, accounts.FileOption{Key: key, Value: value})
		}
	}
	add("Partition", a.GetPartition())
	for _, u := range r.users {
		if u.GetName() == a.GetUser() {
			add("DefaultAccount", u.GetDefaultAccount())
			if u.GetLevel() != 0 {
				add("AdminLevel", levels[min(int(u.GetLevel()), len(levels)-1)])
			}
		}
	}
	var coordinates []string
	for _, rec := range r.accounts {
		if slices.Contains(rec.GetCoordinators(), a.GetUser()) {
			coordinates = append(coordinates, rec.GetName())
		}
	}
	add("Coordinator", strings.Join(coordinates, ","))
	return append(o, assocOptions(a)...)
}

// assocOptions returns the settings of an association itself, without inherited ones.
func assocOptions(a *msg.AssocRecord) (o []accounts.FileOption) {
	if a.GetDefaultQos() != "" {
		o = append(o, accounts.FileOption{Key: "DefaultQOS", Value: a.GetDefaultQos()})
	}
	for _, d := range dumped {
		text := ""
		s := accounts.Find(accounts.Assoc, d.name)
		for _, v := range a.GetValues() {
			if v.GetName() == d.name {
				text += "," + fileValue(s, v)
			}
		}
		if d.name == "Fairshare" && text == "" {
			text = "," + strconv.Itoa(accounts.DefaultShare)
		}
		if d.as == "" {
			d.as = d.name
		}
		if text != "" {
			o = append(o, accounts.FileOption{Key: d.as, Value: text[1:]})
		}
	}
	for _, own := range []accounts.FileOption{{Key: "LimitHours", Value: a.GetLimitHours()},
		{Key: "DefaultPartition", Value: a.GetDefaultPartition()}, {Key: "DefaultGPUType", Value: a.GetDefaultGpuType()}} {
		if own.Value != "" {
			o = append(o, own)
		}
	}
	if len(a.GetQos()) > 0 {
		o = append(o, accounts.FileOption{Key: "QOS", Value: strings.Join(a.GetQos(), ",")})
	}
	return o
}

// fileValue formats a number for the file: durations in minutes, and the parent's share as a number.
func fileValue(s *accounts.Setting, v *msg.PolicyValue) string {
	n := v.GetValue()
	if s.Kind == accounts.Wall {
		n /= 60
	}
	text := strconv.FormatUint(n, 10)
	if v.GetTres() == "mem" {
		text += "M"
	}
	if v.GetTres() != "" {
		text = v.GetTres() + "=" + text
	}
	return text
}
