package fairtree

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAsSlurm: factors of the same tree and usage as sshare -a -l -P of a real Slurm 22.05 showed them.
func TestAsSlurm(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("testdata/" + name + ".slurm")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			var list []Assoc
			var rows [][]string
			above := []string{} // accounts by depth
			for s := bufio.NewScanner(f); s.Scan(); {
				row := strings.Split(s.Text(), "|")
				if row[0] == "Account" {
					continue
				}
				rows = append(rows, row)
				depth := len(row[0]) - len(strings.TrimLeft(row[0], " "))
				a := Assoc{ID: uint32(len(rows)), Account: strings.TrimSpace(row[0]), User: row[1]}
				if a.Shares, err = strconv.ParseUint(row[2], 10, 64); row[2] == "parent" {
					a.Shares = UseParent
				} else if err != nil && depth > 0 {
					t.Fatal(err)
				}
				if a.User == "" {
					above = append(above[:depth], a.Account)
					if depth > 0 {
						a.Above = above[depth-1]
					}
				}
				list = append(list, a)
			}
			tree := New(list)
			for _, row := range rows {
				if used, _ := strconv.ParseFloat(row[5], 64); row[1] != "" { // NormUsage: RawUsage is rounded to seconds
					tree.Place(strings.TrimSpace(row[0]), row[1]).Add(map[string]float64{"billing": used}, nil)
				}
			}
			tree.Weigh()
			i := 0
			tree.Root.Each(func(n *Node) {
				row := rows[i]
				i++
				if n.Account != strings.TrimSpace(row[0]) || n.User != row[1] {
					t.Fatalf("%s %s stands where Slurm has %s", n.Account, n.User, row)
				}
				near := func(what, want string, got, by float64) {
					if w, err := strconv.ParseFloat(want, 64); err == nil && math.Abs(w-got) > by {
						t.Errorf("%s %s: %s %f, Slurm says %s", n.Account, n.User, what, got, want)
					}
				}
				near("NormShares", row[3], n.Norm, 1e-6)
				near("EffectvUsage", row[6], n.Effective, 1e-5)
				near("FairShare", row[7], n.Factor, 1e-6)
				if level, _ := strconv.ParseFloat(row[8], 64); !n.Parent && !math.IsInf(level, 1) {
					near("LevelFS", row[8], n.Level, 1e-4*level)
				} else if row[8] == "inf" && !math.IsInf(n.Level, 1) {
					t.Errorf("%s %s: LevelFS %f, Slurm says inf", n.Account, n.User, n.Level)
				}
			})
		})
	}
}

// TestFactorsFollowUsage: of users in the same account, whoever has used less of the same share has the larger factor; factors are ranks;
// shares of a level, and usage, add up to 1.
func TestFactorsFollowUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := []Assoc{{ID: 1, Account: root}}
		accounts := []string{root}
		for i := range rapid.IntRange(0, 6).Draw(t, "accounts") {
			name := fmt.Sprint("a", i)
			list = append(list, Assoc{ID: uint32(len(list) + 1), Account: name, Above: rapid.SampledFrom(accounts).Draw(t, "above"),
				Shares: rapid.SampledFrom([]uint64{0, 1, 2, 5, UseParent}).Draw(t, "shares")})
			accounts = append(accounts, name)
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "users") {
			list = append(list, Assoc{ID: uint32(len(list) + 1), Account: rapid.SampledFrom(accounts).Draw(t, "account"),
				User: fmt.Sprint("u", i), Shares: rapid.SampledFrom([]uint64{1, 1, 1, 3, UseParent}).Draw(t, "shares")})
		}
		tree, users := New(list), 0
		for _, a := range list {
			if a.User != "" {
				tree.Place(a.Account, a.User).Add(map[string]float64{"billing": float64(rapid.IntRange(0, 5).Draw(t, "used"))}, nil)
				users++
			}
		}
		tree.Weigh()
		tree.Root.Each(func(n *Node) {
			norm, effective := 0.0, 0.0
			level := n.level(nil)
			for i, a := range level {
				if effective += a.Effective; !a.Parent {
					norm += a.Norm
				}
				for _, b := range level[:i] {
					if a.User != "" && b.User != "" && a.Shares == b.Shares && a.Usage < b.Usage && a.Factor < b.Factor {
						t.Fatalf("%s used %f and has the factor %f, %s %f and %f", a.User, a.Usage, a.Factor, b.User, b.Usage, b.Factor)
					}
				}
			}
			if norm > 1+1e-9 || effective > 1+1e-9 {
				t.Fatalf("below %s: shares %f, usage %f", n.Account, norm, effective)
			}
			if place := n.Factor * float64(users); n.User != "" && (place < 1-1e-9 || place > float64(users)+1e-9) {
				t.Fatalf("%s has place %f of %d", n.User, place, users)
			}
		})
	})
}
