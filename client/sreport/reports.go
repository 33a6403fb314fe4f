package sreport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/shares"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// units are the formats of amounts of time: divided by seconds, as a percentage of the total, or both.
type units struct {
	word    string
	seconds float64 // 0: only the percentage
	percent bool
}

func unitsOf(word string) (units, bool) {
	for _, u := range []struct {
		names string
		units units
	}{
		{"secper", units{"Seconds/Percentage of Total", 1, true}}, {"minper", units{"Minutes/Percentage of Total", 60, true}},
		{"hourper", units{"Hours/Percentage of Total", 3600, true}}, {"seconds", units{"Seconds", 1, false}},
		{"minutes", units{"Minutes", 60, false}}, {"hours", units{"Hours", 3600, false}},
		{"percent", units{"Percentage of Total", 0, true}},
	} {
		if called(word, u.names) {
			return u.units, true
		}
	}
	return units{}, false
}

// text formats an amount out of a total.
func (u units) text(seconds, all float64) string {
	percent := "0.00%"
	if all > 0 {
		percent = strconv.FormatFloat(100*seconds/all, 'f', 2, 64) + "%"
	}
	switch {
	case !u.percent:
		return strconv.FormatFloat(float64(int64(seconds/u.seconds)), 'f', 0, 64)
	case u.seconds == 0:
		return percent
	}
	return strconv.FormatFloat(float64(int64(seconds/u.seconds)), 'f', 0, 64) + "(" + percent + ")"
}

// columns reads a list of fields. Amounts are wider if percentages follow them.
func columns(spec string, named, tree bool, u units) (heads []acct.Head, bad string) {
	width := 8
	if u.percent && u.seconds != 0 {
		width = 17
	}
	all := []acct.Head{
		{Name: "Account", Width: 15, Key: "account"}, {Name: "Allocated", Width: width, Key: "allocated"},
		{Name: "Cluster", Width: 9, Key: "cluster"},
		{Name: "Down", Width: width, Key: "down"}, {Name: "Energy", Width: width, Key: "energy"}, {Name: "Idle", Width: width, Key: "idle"},
		{Name: "Login", Width: 9, Key: "login"}, {Name: "Planned", Width: width, Key: "planned"},
		{Name: "PLND Down", Width: width, Key: "planneddown"},
		{Name: "Proper Name", Width: 15, Key: "proper"}, {Name: "Reported", Width: width, Key: "reported"},
		{Name: "TRES Name", Width: 14, Key: "tresname"},
		{Name: "TRES Count", Width: 10, Key: "trescount"}, {Name: "Used", Width: width, Key: "used"},
		// Names in older versions.
		{Name: "PLND Down", Width: width, Key: "plnddown"}, {Name: "Planned", Width: width, Key: "reserved"},
	}
	words := command.List(spec)
	if named && !slices.ContainsFunc(words, func(w string) bool { return called(strings.TrimRight(w, "%0123456789"), "tresname") }) {
		at := slices.IndexFunc(words, func(w string) bool { return slices.Contains([]string{"used", "allocated"}, strings.ToLower(w)) })
		words = slices.Insert(words, max(at, 0), "tresname")
	}
	for _, word := range words {
		name, size, sized := strings.Cut(word, "%")
		i := slices.IndexFunc(all, func(h acct.Head) bool { return strings.EqualFold(h.Key, name) })
		if i < 0 {
			i = slices.IndexFunc(all, func(h acct.Head) bool { return called(name, h.Key) })
		}
		if i < 0 {
			return nil, name
		}
		h := all[i]
		h.Key = map[string]string{"plnddown": "planneddown", "reserved": "planned"}[h.Key]
		h.Key = cmp.Or(h.Key, all[i].Key)
		if tree && h.Key == "account" {
			h.Width = -20 // left-aligned, to show the depth
		}
		if n, err := strconv.Atoi(size); sized && err == nil {
			h.Width = max(min(n, 1<<12), -1<<12)
		}
		heads = append(heads, h)
	}
	return heads, ""
}

// utilization prints the use of the whole cluster, a line per resource.
func (r *report) utilization(reply *msg.AccountUsageReply) int {
	r.title("Cluster Utilization", false)
	var rows []map[string]string
	for _, name := range r.tres {
		all := shares.Amount(reply.GetCapacity(), name)
		used := 0.0
		for _, row := range reply.GetRows() {
			used += shares.Amount(row.GetUsed(), name)
		}
		down := min(shares.Amount(reply.GetDown(), name), all)
		idle := max(all-down-used, 0)
		show := func(v float64) string { return r.units.text(v, all) }
		rows = append(rows, map[string]string{"cluster": r.env.ClusterName(), "tresname": name, "allocated": show(used),
			"down": show(down), "planneddown": show(0),
			"idle": show(idle), "planned": show(0), "reported": show(all),
			"trescount": fmt.Sprint(int64(all / r.until.Sub(r.since).Seconds()))})
	}
	return r.print(rows)
}

// row is a line of a report about users.
type row struct {
	account string
	uid     uint32
	login   string
	used    []*msg.TresUsage
}

// rows returns the users with usage that the command line selects.
func (r *report) rows(reply *msg.AccountUsageReply) (list []row) {
	for _, u := range reply.GetRows() {
		x := row{account: u.GetAccount(), uid: u.GetUid(), login: shares.UserName(u.GetUid()), used: u.GetUsed()}
		if len(x.used) == 0 || len(r.accounts) > 0 && !slices.ContainsFunc(r.accounts,
			func(a string) bool { return strings.EqualFold(a, x.account) }) {
			continue
		}
		if len(r.users) > 0 && !slices.Contains(r.users, x.login) && !slices.Contains(r.users, strconv.FormatUint(uint64(x.uid), 10)) {
			continue
		}
		list = append(list, x)
	}
	return list
}

// texts returns the lines of one row, one per resource. Accounts have no login.
func (r *report) texts(reply *msg.AccountUsageReply, account, login string, used func(name string) float64) (lines []map[string]string) {
	proper := ""
	if a, ok := passwd.User(login); ok && login != "" {
		proper, _, _ = strings.Cut(a.Gecos, ",")
	}
	for _, name := range r.tres {
		all := shares.Amount(reply.GetCapacity(), name)
		lines = append(lines, map[string]string{"cluster": r.env.ClusterName(), "account": account, "login": login, "proper": proper,
			"tresname": name,
			"used":     r.units.text(used(name), all), "energy": r.units.text(0, all)})
	}
	return lines
}

// byAccount prints each account with its users below it, and root with the sum at the top.
func (r *report) byAccount(reply *msg.AccountUsageReply) int {
	r.title("Cluster/Account/User Utilization", true)
	list := r.rows(reply)
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(order(a.account), order(b.account)), cmp.Compare(a.account, b.account), cmp.Compare(a.login, b.login))
	})
	sum := func(account string) func(string) float64 {
		return func(name string) (total float64) {
			for _, x := range list {
				if x.account == account || account == shares.Root {
					total += shares.Amount(x.used, name)
				}
			}
			return total
		}
	}
	var lines []map[string]string
	last := ""
	for i, x := range list {
		indent := func(depth int) string {
			if !r.tree {
				return ""
			}
			return strings.Repeat(" ", depth)
		}
		if i == 0 {
			lines, last = r.texts(reply, shares.Root, "", sum(shares.Root)), shares.Root
		}
		depth := 1
		if x.account != shares.Root {
			depth = 2
		}
		if x.account != last {
			lines, last = append(lines, r.texts(reply, indent(1)+x.account, "", sum(x.account))...), x.account
		}
		lines = append(lines, r.texts(reply, indent(depth)+x.account, x.login,
			func(name string) float64 { return shares.Amount(x.used, name) })...)
	}
	return r.print(lines)
}

// order sorts root before the accounts below it.
func order(account string) int {
	if account == shares.Root {
		return 0
	}
	return 1
}

func (r *report) byUser(reply *msg.AccountUsageReply) int {
	r.title("Cluster/User/Account Utilization", true)
	list := r.rows(reply)
	r.byUsage(list)
	return r.printUsers(reply, list)
}

// topUsage prints the users with the largest use of the first resource; with group, all accounts of a user are one row.
func (r *report) topUsage(reply *msg.AccountUsageReply) int {
	r.title(fmt.Sprintf("Top %d Users", r.top), true)
	list := r.rows(reply)
	if r.group {
		list = grouped(list)
	}
	r.byUsage(list)
	return r.printUsers(reply, list[:min(len(list), r.top)])
}

// byUsage sorts by use of the first resource, descending.
func (r *report) byUsage(list []row) {
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(shares.Amount(b.used, r.tres[0]), shares.Amount(a.used, r.tres[0])), cmp.Compare(a.login, b.login))
	})
}

// grouped combines all accounts of a user into one row.
func grouped(list []row) (out []row) {
	for _, x := range list {
		i := slices.IndexFunc(out, func(o row) bool { return o.uid == x.uid })
		if i < 0 {
			out = append(out, x)
			continue
		}
		o := &out[i]
		o.account += "," + x.account
		sums := map[string]float64{}
		for _, t := range append(slices.Clone(o.used), x.used...) {
			sums[t.GetName()] += t.GetSeconds()
		}
		o.used = nil
		for name, v := range sums {
			o.used = append(o.used, &msg.TresUsage{Name: name, Seconds: v})
		}
	}
	return out
}

func (r *report) printUsers(reply *msg.AccountUsageReply, list []row) int {
	var lines []map[string]string
	for _, x := range list {
		lines = append(lines, r.texts(reply, x.account, x.login, func(name string) float64 { return shares.Amount(x.used, name) })...)
	}
	return r.print(lines)
}
