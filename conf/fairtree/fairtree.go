// Package fairtree computes the fair-share factors of Slurm's Fair Tree (https://slurm.schedmd.com/fair_tree.html) from a tree of
// accounts and users with their shares and usage. At each level, those who have used less of their share come first; a user's
// factor is the rank counted from the end, divided by the number of users. Pure.
package fairtree

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Node is an account, or the association of a user with one.
type Node struct {
	ID                       uint32 // of the association; 0: none
	Account, User, Partition string // User is empty for an account
	UID                      uint32
	Shares                   uint64
	Parent                   bool               // fairshare=parent; children of such an account count as children of the account above it
	Used                     map[string]float64 // by resource, times seconds; Weigh adds the sum of the children to that of an account
	Left                     map[string]float64 // upper bound of what running jobs will still use
	Children                 []*Node

	// set by Weigh
	Depth     int     // 0 for the account root
	Above     *Node   // nil for root
	Of        uint64  // sum of the shares of the level
	Norm      float64 // share of the level, 0 to 1
	Usage     float64 // seconds of billing
	NormUsage float64 // fraction of all usage
	Effective float64 // fraction of the usage of the level
	Level     float64 // Norm divided by Effective; +Inf without usage, 0 without a share
	Factor    float64 // only of users
}

// Assoc is the definition of an association. Without a user it is that of the account itself.
type Assoc struct {
	ID                       uint32
	Account, User, Partition string
	Above                    string // of an account: its parent
	Shares                   uint64 // UseParent: fairshare=parent
}

// UseParent stands for fairshare=parent.
const UseParent = 1<<31 - 1

// Tree holds the accounts and users of a cluster.
type Tree struct {
	Root     *Node
	accounts map[string]*Node
	users    map[[2]string]*Node
	open     bool // no account has members except root, so every user belongs to root
}

const root = "root"

// New builds the tree from the associations. They may come in any order; every account has one.
func New(list []Assoc) *Tree {
	t := &Tree{Root: &Node{Account: root}, accounts: map[string]*Node{}, users: map[[2]string]*Node{}, open: true}
	t.accounts[root] = t.Root
	made := make([]*Node, len(list))
	for i, a := range list {
		n := &Node{ID: a.ID, Account: a.Account, User: a.User, Partition: a.Partition, Shares: a.Shares, Parent: a.Shares == UseParent}
		switch {
		case a.User == "" && a.Account == root:
			n = t.Root
			n.ID = a.ID
		case a.User == "":
			t.accounts[a.Account] = n
		}
		made[i] = n
	}
	for i, a := range list {
		above, n := a.Above, made[i]
		if a.User != "" {
			above = a.Account
			t.open = t.open && a.User == root
			if key := [2]string{a.Account, a.User}; t.users[key] == nil || a.Partition == "" {
				t.users[key] = n
			}
		}
		if up := t.accounts[above]; up != nil && n != t.Root {
			up.Children = append(up.Children, n)
		}
	}
	return t
}

// Place returns the node that counts the usage of a user in an account, or nil if there is no such association.
func (t *Tree) Place(account, user string) *Node {
	key := [2]string{account, user}
	if n := t.users[key]; n != nil || !t.open {
		return n
	}
	in := t.accounts[account]
	if in == nil {
		in = t.Root.child(account, "")
		t.accounts[account] = in
	}
	t.users[key] = in.child(account, user)
	return t.users[key]
}

// Known returns the user's node in root if every user has one there, else nil.
func (t *Tree) Known(user string) *Node {
	if !t.open {
		return nil
	}
	return t.Place(root, user)
}

// Weigh computes the results of all nodes; see Node.
func (t *Tree) Weigh() { t.Root.Weigh() }

// Users calls f for the node of every user.
func (t *Tree) Users(f func(*Node)) {
	t.Root.Each(func(n *Node) {
		if n.User != "" {
			f(n)
		}
	})
}

func (n *Node) child(account, user string) *Node {
	c := &Node{Account: account, User: user, Shares: 1}
	n.Children = append(n.Children, c)
	return c
}

// Add adds usage.
func (n *Node) Add(used, left map[string]float64) {
	add(&n.Used, used)
	add(&n.Left, left)
}

func add(to *map[string]float64, from map[string]float64) {
	if *to == nil {
		*to = map[string]float64{}
	}
	for name, v := range from {
		(*to)[name] += v
	}
}

// Each calls f for every node, accounts before the nodes below them.
func (n *Node) Each(f func(*Node)) {
	f(n)
	for _, c := range n.Children {
		c.Each(f)
	}
}

// Weigh sums up usage, sorts children (users first, by name) and computes the shares and factors of the tree below n. Call it once
// per tree.
func (n *Node) Weigh() {
	n.sum(0)
	n.NormUsage, n.Effective = 1, 1
	n.weigh(n.Usage)
	p := places{}
	n.Each(func(x *Node) {
		if x.User != "" {
			p.all++
		}
	})
	p.next, p.last = p.all, p.all
	p.rank(n.level(nil), false)
}

func (n *Node) sum(depth int) {
	n.Depth = depth
	for _, c := range n.Children {
		c.Above = n
		c.sum(depth + 1)
		n.Add(c.Used, c.Left)
	}
	n.Usage = n.Used["billing"]
	slices.SortFunc(n.Children, func(a, b *Node) int {
		return cmp.Or(boolean(a.User == "")-boolean(b.User == ""),
			strings.Compare(a.Account, b.Account), strings.Compare(a.User, b.User), strings.Compare(a.Partition, b.Partition))
	})
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// level appends the nodes that share what n has. Accounts with fairshare=parent are replaced by their children.
func (n *Node) level(out []*Node) []*Node {
	for _, c := range n.Children {
		if c.User == "" && c.Parent {
			out = c.level(out)
		} else {
			out = append(out, c)
		}
	}
	return out
}

func (n *Node) weigh(all float64) {
	level, shares := n.level(nil), uint64(0)
	for _, c := range level {
		if !c.Parent {
			shares += c.Shares
		}
	}
	for _, c := range level {
		switch {
		case c.Parent:
			c.Norm = n.Norm
		case shares > 0:
			c.Norm = float64(c.Shares) / float64(shares)
		}
		c.Of = shares
		c.Effective, c.NormUsage = part(c.Usage, n.Usage), part(c.Usage, all)
		switch {
		case c.Norm == 0 && !c.Parent:
			c.Level = 0
		case c.Effective == 0 || c.Parent: // users without a share of their own come first
			c.Level = math.Inf(1)
		default:
			c.Level = c.Norm / c.Effective
		}
		c.weigh(all)
	}
	for _, c := range n.Children { // accounts without a share of their own are shown with their usage
		if c.User == "" && c.Parent {
			c.Of, c.Effective, c.NormUsage = shares, part(c.Usage, n.Usage), part(c.Usage, all)
		}
	}
}

func part(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// places assigns ranks while rank walks the tree: next is the rank of the next user, last that of the previous one, both counted
// from the end.
type places struct{ all, next, last int }

// rank assigns factors to the users of a level and of the levels below it. Users with an equal level of fair share get the same
// factor; accounts with an equal one are ranked as if their members were in a single account. With tied, the level starts at the
// same rank as the user before it.
func (p *places) rank(level []*Node, tied bool) {
	slices.SortStableFunc(level, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), boolean(a.User == "")-boolean(b.User == ""))
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
		merged := n.level(nil)
		for i+1 < len(level) && level[i+1].Level == n.Level {
			i++
			merged = level[i].level(merged)
		}
		p.rank(merged, tied)
	}
}
