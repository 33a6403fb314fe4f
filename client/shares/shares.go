// Package shares builds the tree of accounts and users with their shares and usage that sshare and scontrol show assoc_mgr print.
//
// While no account has a user, everybody belongs to the account "root" with one share; accounts that jobs named with -A are below
// it.
package shares

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/fairtree"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Root is the account to which everybody belongs.
const Root = acct.DefaultAccount

// Node is an account, or the association of a user with one.
type Node = fairtree.Node

// Load fetches the associations and the usage until now, and builds the tree. If no association is defined, users that are named,
// known or have usage get a node in root.
func Load(ctx context.Context, c *client.Client, named []string) (*Node, *msg.AccountUsageReply, error) {
	reply, err := c.AccountUsage(ctx, &msg.AccountUsageRequest{Decayed: true})
	if err != nil {
		return nil, nil, err
	}
	stream, err := c.Policy(ctx, &msg.PolicyRequest{Own: true})
	if err != nil {
		return nil, nil, err
	}
	var assocs []*msg.AssocRecord
	err = view.EachPage(stream.Recv, func(p *msg.PolicyReply) {
		for _, row := range p.GetRows() {
			if row.GetAssoc() != nil {
				assocs = append(assocs, row.GetAssoc())
			}
		}
	})
	return Tree(reply, assocs, UserName, KnownUsers(named)), reply, err
}

// KnownUsers returns root, the users of this machine who may log in, the caller, and the named users that exist: directories are
// not listed.
func KnownUsers(named []string) []string {
	names := []string{"root", passwd.Self().Name}
	if text, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.SplitSeq(string(text), "\n") {
			f := strings.Split(line, ":")
			if len(f) > 6 && !strings.HasSuffix(f[6], "nologin") && !strings.HasSuffix(f[6], "/false") {
				if uid, err := strconv.Atoi(f[2]); err == nil && uid >= 1000 && uid < 65534 {
					names = append(names, f[0])
				}
			}
		}
	}
	for _, name := range named {
		if a, ok := passwd.User(name); ok {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UserName is the name of a uid, or the number if it has none.
func UserName(uid uint32) string {
	text := strconv.FormatUint(uint64(uid), 10)
	if a, ok := passwd.User(text); ok && a.UID == uid {
		return a.Name
	}
	return text
}

// Tree builds the tree from an answer, the associations, the names of uids, and the users that get a node even without usage.
func Tree(reply *msg.AccountUsageReply, assocs []*msg.AssocRecord, name func(uid uint32) string, users []string) *Node {
	list := make([]fairtree.Assoc, len(assocs))
	for i, a := range assocs {
		list[i] = fairtree.Assoc{ID: a.GetId(), Account: a.GetAccount(), User: a.GetUser(), Partition: a.GetPartition(),
			Above: a.GetParent(), Shares: 1}
		for _, v := range a.GetValues() {
			if v.GetName() == "Fairshare" {
				list[i].Shares = v.GetValue()
			}
		}
	}
	t := fairtree.New(list)
	for _, r := range reply.GetRows() {
		if n := t.Place(r.GetAccount(), name(r.GetUid())); n != nil {
			n.UID = r.GetUid()
			n.Add(Amounts(r.GetUsed()), Amounts(r.GetLeft()))
		}
	}
	for _, user := range users {
		if uid, ok := passwd.UID(user); ok {
			if n := t.Known(user); n != nil {
				n.UID = uid
			}
		}
	}
	t.Weigh()
	return t.Root
}

// Amounts returns the amounts of a list by name.
func Amounts(list []*msg.TresUsage) map[string]float64 {
	m := map[string]float64{}
	for _, u := range list {
		m[u.GetName()] += u.GetSeconds()
	}
	return m
}

// LeftText formats what running jobs may still use, in minutes, "cpu=12,mem=4000,…", for every resource of the cluster.
func LeftText(n *Node, resources []string) string {
	var b strings.Builder
	for i, name := range resources {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + "=" + strconv.FormatInt(int64(n.Left[name]/60), 10))
	}
	return b.String()
}

// Amount returns the amount of a resource in a list.
func Amount(list []*msg.TresUsage, name string) float64 {
	for _, t := range list {
		if t.GetName() == name {
			return t.GetSeconds()
		}
	}
	return 0
}

// Resources returns the trackable resources of the cluster.
func Resources(reply *msg.AccountUsageReply) []string {
	names := []string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"}
	for _, t := range reply.GetCapacity() {
		if !slices.Contains(names, t.GetName()) {
			names = append(names, t.GetName())
		}
	}
	return names
}

// Raw formats the assigned shares of a node.
func Raw(n *Node) string {
	if n.Parent {
		return "parent"
	}
	return strconv.FormatUint(n.Shares, 10)
}

// ID is the number of the association in sacct and sacctmgr: 1 is root's own; that of a user without one is the uid plus 2.
func ID(n *Node) int64 {
	switch {
	case n.ID != 0:
		return int64(n.ID)
	case n.User == "":
		return 1
	}
	return doc.AssociationID(n.UID)
}
