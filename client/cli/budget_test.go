package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/budget"
	"github.com/sluice-hpc/sluice/client/clienttest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func budgetList() *clienttest.Controller {
	return &clienttest.Controller{BudgetList: &pb.BudgetsReply{Enforced: true, NowNs: 1000e9, Budgets: []*pb.Budget{
		{Account: "vision", Tres: "gres/gpu", Limit: 1000 * 3600, Known: true, Used: 912*3600 + 1800, Running: 60 * 3600, Held: 4},
		{Account: "vision", User: "ann", Partition: "gpu", Tres: "cpu", Limit: 600, Known: true, Used: 900},
		{Qos: "course", Tres: "wall", Limit: 0, Running: 36},
	}}}
}

// TestBudget: the table in hours and in percent of the limit, for programs, and JSON in seconds; what is not known is ? or null.
func TestBudget(t *testing.T) {
	for args, want := range map[string]string{
		"": "OF                                TRES      LIMIT   USED  RUNNING   LEFT\n" +
			"account vision                    gres/gpu   1000  912.5       60   87.5\n" +
			"user ann in vision, partition gpu  cpu        0.17   0.25        0  -0.08\n" +
			"qos course                        wall          0      ?     0.01      ?\n",
		"-n -P -t percent": "account vision|gres/gpu|100%|91.25%|6%|8.75%\nuser ann in vision, partition gpu|cpu|100%|150%|0%|-50%\n" +
			"qos course|wall|-|?|-|?\n",
		"-nPt m vision": "account vision|gres/gpu|60000|54750|3600|5250\nuser ann in vision, partition gpu|cpu|10|15|0|-5\n" +
			"qos course|wall|0|?|0.6|?\n",
	} {
		c := budgetList()
		stdout, stderr, exit := runFunc(t, c, budget.Verb().Main, strings.Fields(args)...)
		if strings.ReplaceAll(stdout, " ", "") != strings.ReplaceAll(want, " ", "") || stderr != "" || exit != 0 {
			t.Errorf("budget %s: exit %d, %q\ngot\n%swant\n%s", args, exit, stderr, stdout, want)
		}
		if names := c.BudgetsAsked[0].Names; strings.HasSuffix(args, "vision") != reflect.DeepEqual(names, []string{"vision"}) {
			t.Errorf("budget %s asked for %v", args, names)
		}
	}
	stdout, _, _ := runFunc(t, budgetList(), budget.Verb().Main, "--json")
	var got struct {
		Budgets []struct {
			Account, User, Partition, Qos, Tres string
			Limit                               int64  `json:"limit_seconds"`
			Used                                *int64 `json:"used_seconds"`
			Left                                *int64 `json:"left_seconds"`
			Running                             int64  `json:"running_seconds"`
			Held                                int64  `json:"held_now"`
		}
		Enforced bool
		Now      int64
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err, stdout)
	}
	if b := got.Budgets; len(b) != 3 || b[0].Held != 4 || *b[0].Left != 315000 || b[1].User != "ann" || *b[1].Left != -300 ||
		b[2].Used != nil || b[2].Left != nil || b[2].Running != 36 || !got.Enforced || got.Now != 1000 {
		t.Errorf("%+v of %s", got, stdout)
	}
}

// TestBudgetSays: no budget, budgets that hold nothing back, and command lines that are wrong.
func TestBudgetSays(t *testing.T) {
	idle := budgetList()
	idle.BudgetList.Enforced = false
	for _, tt := range []struct {
		c    *clienttest.Controller
		args string
		want string
		exit int
	}{
		{&clienttest.Controller{BudgetList: &pb.BudgetsReply{Enforced: true}}, "", "no budget is set; an administrator", 0},
		{idle, "", "AccountingStorageEnforce in slurm.conf does not include limits", 0},
		{budgetList(), "-t fortnights", "-t takes Seconds, Minutes, Hours or Percent, not fortnights", 1},
		{budgetList(), "--nosuch", "unrecognized option", 1},
	} {
		_, stderr, exit := runFunc(t, tt.c, budget.Verb().Main, strings.Fields(tt.args)...)
		if exit != tt.exit || !strings.Contains(stderr, tt.want) {
			t.Errorf("budget %s: exit %d, %q, want %q", tt.args, exit, stderr, tt.want)
		}
	}
}
