package shares

import (
	"fmt"
	"math"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"pgregory.net/rapid"
)

func used(account string, uid uint32, billing float64) *msg.AccountUsage {
	return &msg.AccountUsage{Account: account, Uid: uid, Used: []*msg.TresUsage{{Name: "billing", Seconds: billing}}}
}

// lines are account, user, NormShares, EffectvUsage and FairShare of a tree.
func lines(root *Node) (out []string) {
	root.Each(func(n *Node) {
		out = append(out, fmt.Sprintf("%d %s|%s|%.6f|%.6f|%.6f", n.Depth, n.Account, n.User, n.Norm, n.Effective, n.Factor))
	})
	return out
}

// The tree of a real Slurm 22.05 that has used nothing yet: two users in root, the same two in an account below it.
func TestTreeWithoutUsage(t *testing.T) {
	got := lines(Tree(&msg.AccountUsageReply{Rows: []*msg.AccountUsage{used("default", 65534, 0), used("default", 0, 0),
		used("root", 65534, 0)}}, nil, UserName, []string{"root"}))
	want := []string{
		"0 root||0.000000|1.000000|0.000000",
		"1 root|nobody|0.333333|0.000000|1.000000",
		"1 root|root|0.333333|0.000000|1.000000",
		"1 default||0.333333|0.000000|0.000000",
		"2 default|nobody|0.500000|0.000000|1.000000",
		"2 default|root|0.500000|0.000000|1.000000",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The same tree after some jobs, as sshare of that Slurm showed it.
func TestTreeAsRecorded(t *testing.T) {
	reply := &msg.AccountUsageReply{Rows: []*msg.AccountUsage{used("default", 65534, 0), used("default", 0, 0),
		used("root", 65534, 1042.19), used("root", 0, 1554.19)}}
	root := Tree(reply, nil, UserName, nil)
	var got []string
	root.Each(func(n *Node) {
		got = append(got, fmt.Sprintf("%s|%s|%d|%.5f|%.5f|%.6f|%.4f", n.Account, n.User, int(n.Usage), n.NormUsage, n.Effective, n.Factor,
			n.Level))
	})
	want := []string{
		"root||2596|1.00000|1.00000|0.000000|0.0000",
		"root|nobody|1042|0.40140|0.40140|0.500000|0.8304",
		"root|root|1554|0.59860|0.59860|0.250000|0.5569",
		"default||0|0.00000|0.00000|0.000000|+Inf",
		"default|nobody|0|0.00000|0.00000|1.000000|+Inf",
		"default|root|0|0.00000|0.00000|1.000000|+Inf",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Who has used less of the same share has the larger factor; factors are places by the number of users; shares and usage of a level
// add up to 1.
func TestFactorsFollowUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reply := &msg.AccountUsageReply{}
		for i := range rapid.IntRange(1, 30).Draw(t, "rows") {
			account := rapid.SampledFrom([]string{Root, "vision", "speech"}).Draw(t, "account")
			reply.Rows = append(reply.Rows, used(account, 3_000_000_000+uint32(i), float64(rapid.IntRange(0, 1e9).Draw(t, "used"))))
		}
		root := Tree(reply, nil, func(uid uint32) string { return fmt.Sprint(uid) }, nil)
		users := 0
		root.Each(func(n *Node) {
			if n.User != "" {
				users++
			}
		})
		root.Each(func(n *Node) {
			norm, effective := 0.0, 0.0
			for i, a := range n.Children {
				norm, effective = norm+a.Norm, effective+a.Effective
				for _, b := range n.Children[:i] {
					if a.User != "" && b.User != "" && (a.Usage < b.Usage) != (a.Factor > b.Factor) && a.Usage != b.Usage {
						t.Fatalf("%s used %f and has the factor %f, %s %f and %f", a.User, a.Usage, a.Factor, b.User, b.Usage, b.Factor)
					}
				}
			}
			if len(n.Children) > 0 && (math.Abs(norm-1) > 1e-9 || n.Usage > 0 && math.Abs(effective-1) > 1e-9) {
				t.Fatalf("below %s: shares %f, usage %f", n.Account, norm, effective)
			}
			if place := n.Factor * float64(users); n.User != "" && (place < 1-1e-9 || place > float64(users)+1e-9) {
				t.Fatalf("%s has place %f of %d", n.User, place, users)
			}
		})
	})
}
