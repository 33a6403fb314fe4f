// Package shares is the tree of accounts and users with their shares and usage, as sshare, scontrol show assoc_mgr and sacctmgr show it.
//
// Until accounts can be defined there is one, "root", to which everybody belongs with one share; an account that jobs named with -A
// stands below it. Factors are those of Slurm's Fair Tree (https://slurm.schedmd.com/fair_tree.html): at each level who has used less
// of what is his comes first, and a user's factor is his place from the end, divided by the number of users.
package shares

import (
	"cmp"
	"context"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// Root is the account that everybody belongs to.
const Root = acct.DefaultAccount

// Node is an account, or a user's place in one.
type Node struct {
	Account, User string // User is empty for an account
	UID           uint32
	Depth         int // 0 for the account root
	Norm          float64
	Usage         float64            // seconds of billing
	NormUsage     float64            // of all usage
	Effective     float64            // of the usage of the level
	Level         float64            // Norm by Effective; +Inf without usage
	Factor        float64            // of users
	Wall          float64            // seconds that jobs ran
	Used          map[string]float64 // by resource, times seconds
	Left          []*msg.TresUsage
	Children      []*Node
}

// Load asks for the usage until now, and makes the tree. Users that are named, known or have used something have a place in root.
func Load(ctx context.Context, c *client.Client, named []string) (*Node, *msg.AccountUsageReply, error) {
	reply, err := c.AccountUsage(ctx, &msg.AccountUsageRequest{Decayed: true})
	if err != nil {
		return nil, nil, err
	}
	return Tree(reply, UserName, KnownUsers(named)), reply, nil
}

// KnownUsers are root, those who may log in, the caller, and who of the named exists: directories are not listed.
func KnownUsers(named []string) []string {
	names := []string{"root", accounts.Self().Name}
	if passwd, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.SplitSeq(string(passwd), "\n") {
			f := strings.Split(line, ":")
			if len(f) > 6 && !strings.HasSuffix(f[6], "nologin") && !strings.HasSuffix(f[6], "/false") {
				if uid, err := strconv.Atoi(f[2]); err == nil && uid >= 1000 && uid < 65534 {
					names = append(names, f[0])
				}
			}
		}
	}
	for _, name := range named {
		if a, ok := accounts.User(name); ok {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UserName is the name of a uid, or the number where nobody has it.
func UserName(uid uint32) string {
	text := strconv.FormatUint(uint64(uid), 10)
	if a, ok := accounts.User(text); ok && a.UID == uid {
		return a.Name
	}
	return text
}

// Tree is made of an answer, the names of uids and the users that have a place even without usage.
func Tree(reply *msg.AccountUsageReply, name func(uid uint32) string, users []string) *Node {
	root := &Node{Account: Root, Used: map[string]float64{}}
	for _, r := range reply.GetRows() {
		in := root
		if r.GetAccount() != Root {
			in = root.child(r.GetAccount(), "", 1)
		}
		n := in.child(r.GetAccount(), name(r.GetUid()), in.Depth+1)
		n.UID, n.Left = r.GetUid(), r.GetLeft()
		for _, u := range r.GetUsed() {
			n.Used[u.GetName()] += u.GetSeconds()
		}
	}
	for _, user := range users {
		if uid, ok := accounts.UID(user); ok {
			root.child(Root, user, 1).UID = uid
		}
	}
	root.total()
	root.NormUsage, root.Effective = 1, 1
	root.weigh(root.Usage)
	all := root.countUsers()
	p := places{all: all, next: all, last: all}
	p.rank(root.Children, false)
	return root
}

// child finds or makes a node below n.
func (n *Node) child(account, user string, depth int) *Node {
	for _, c := range n.Children {
		if c.Account == account && c.User == user {
			return c
		}
	}
	c := &Node{Account: account, User: user, Depth: depth, Used: map[string]float64{}}
	n.Children = append(n.Children, c)
	return c
}

// total adds up usage and puts children in order: users first, by name.
func (n *Node) total() {
	left := map[string]float64{}
	for _, c := range n.Children {
		c.total()
		for name, v := range c.Used {
			n.Used[name] += v
		}
		for _, t := range c.Left {
			left[t.GetName()] += t.GetSeconds()
		}
	}
	n.Usage, n.Wall = n.Used["billing"], n.Used["wall"]
	if n.User == "" {
		for name, v := range left {
			n.Left = append(n.Left, &msg.TresUsage{Name: name, Seconds: v})
		}
	}
	slices.SortFunc(n.Children, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(len(a.Children), 0)-cmp.Compare(len(b.Children), 0), cmp.Compare(a.Account, b.Account),
			cmp.Compare(a.User, b.User))
	})
}

func (n *Node) weigh(all float64) {
	for _, c := range n.Children {
		c.Norm = 1 / float64(len(n.Children))
		if all > 0 {
			c.NormUsage = c.Usage / all
		}
		if n.Usage > 0 {
			c.Effective = c.Usage / n.Usage
		}
		c.Level = math.Inf(1)
		if c.Effective > 0 {
			c.Level = c.Norm / c.Effective
		}
		c.weigh(all)
	}
}

func (n *Node) countUsers() int {
	users := 0
	if n.User != "" {
		users = 1
	}
	for _, c := range n.Children {
		users += c.countUsers()
	}
	return users
}

// places are given out while the tree is walked: next is what the next user gets, last what the last one got, both counted from the end.
type places struct{ all, next, last int }

// rank gives the users of a level, and of the levels below it, their factors. Those with the same level of fair share have the same
// place; accounts that have are ranked as if who is in them were in one. tied: the level has the place of the user before it.
func (p *places) rank(level []*Node, tied bool) {
	level = slices.Clone(level)
	slices.SortStableFunc(level, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(len(a.Children), 0)-cmp.Compare(len(b.Children), 0))
	})
	for i := 0; i < len(level); i++ {
		n := level[i]
		if i > 0 {
			tied = n.Level == level[i-1].Level
		}
		if n.User != "" {
			if !tied {
				p.last = p.next
			}
			n.Factor = float64(p.last) / float64(p.all)
			p.next--
			continue
		}
		merged := slices.Clone(n.Children)
		for i+1 < len(level) && level[i+1].Level == n.Level {
			i++
			merged = append(merged, level[i].Children...)
		}
		p.rank(merged, tied)
	}
}

// Each calls f for every node, accounts before who is in them.
func (n *Node) Each(f func(*Node)) {
	f(n)
	for _, c := range n.Children {
		c.Each(f)
	}
}

// LeftText is what running jobs may still use, in minutes, "cpu=12,mem=4000,…": of every resource that the cluster has.
func LeftText(n *Node, resources []string) string {
	var b strings.Builder
	for i, name := range resources {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + "=" + strconv.FormatInt(int64(Amount(n.Left, name)/60), 10))
	}
	return b.String()
}

// Amount is what a list has of a resource.
func Amount(list []*msg.TresUsage, name string) float64 {
	for _, t := range list {
		if t.GetName() == name {
			return t.GetSeconds()
		}
	}
	return 0
}

// Resources are the trackable resources of the cluster that an answer is from.
func Resources(reply *msg.AccountUsageReply) []string {
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	for _, t := range reply.GetCapacity() {
		if !slices.Contains(names, t.GetName()) {
			names = append(names, t.GetName())
		}
	}
	return names
}

// ID is the number of the association, as sacct and sacctmgr show it: 1 is root's own, a user's is 2 more than the uid.
func (n *Node) ID() int64 {
	if n.User == "" {
		return 1
	}
	return doc.AssociationID(n.UID)
}
