// Package budget is `sluice budget`: the remainder of limits on total use (GrpTRESMins, GrpWall) of accounts, users and QOS.
package budget

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Verb is `sluice budget`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "budget", Line: "show what is left of the budgets of accounts, users and QOS", Args: "[ACCOUNT|USER|QOS…]",
		Page: command.Page{
			About: `Shows the budgets of accounts, users and QOS (GrpTRESMins and GrpWall of sacctmgr), and the amounts left. With an
ACCOUNT it shows the budgets of the account and its users, with a USER those that apply to the user's jobs.`,
			Options: []command.Option{
				{Name: opt.Name{Long: "time_format", Short: 't', Arg: opt.Required}, Meta: "UNIT",
					Help: "Seconds, Minutes, Hours (default) or Percent"},
				{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "separate fields with |"},
				{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no headings"},
				{Name: opt.Name{Long: "json"}, Help: "as JSON, in seconds"},
			},
			Blocks: []command.Block{{Title: "Columns", Text: `  OF       the account, the user and the account, or the QOS
  TRES     the resource whose use is limited; wall is run time, whatever a job holds
  LIMIT    the total amount: resource times hours
  USED     the amount used until now, also by running jobs; decays with PriorityDecayHalfLife; ? while accounting is being read
  RUNNING  the amount that running jobs can still use until their time limits
  LEFT     LIMIT without USED
`}},
			Examples: `  sluice budget                       all budgets that you may see
  sluice budget vision                budgets of account vision and its users
  sluice budget $USER -t percent      the budgets of your jobs, in percent of the limits
  sluice budget --json | jq '.budgets[] | select(.left_seconds <= 0)'
`,
		},
		Run: run,
	}
}

// options is a parsed command line.
type options struct {
	request              msg.BudgetsRequest
	unit                 string
	parsable, bare, json bool
}

// units are the seconds of each unit; percent depends on the limit.
var units = map[string]float64{"seconds": 1, "minutes": 60, "hours": 3600, "percent": 0}

func run(call *command.Call) error {
	o := &options{unit: "hours", request: msg.BudgetsRequest{Names: call.Args}}
	if err := call.Each(o.set); err != nil {
		return err
	}
	ctx := context.Background()
	c, err := call.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Budgets(ctx, &o.request)
	if err != nil {
		return err
	}
	if o.print(call.Env, reply) != nil {
		return command.ExitCode(1) // reported by standard output
	}
	return nil
}

func (o *options) set(name, value string) error {
	switch name {
	case "time_format":
		if o.unit = unitOf(value); o.unit == "" {
			return fmt.Errorf("-t takes Seconds, Minutes, Hours or Percent, not %s", format.Escape(value))
		}
	case "parsable2":
		o.parsable = true
	case "noheader":
		o.bare = true
	case "json":
		o.json = true
	}
	return nil
}

// unitOf returns the unit for a word or an abbreviation.
func unitOf(word string) string {
	for name := range units {
		if word != "" && strings.HasPrefix(name, strings.ToLower(word)) {
			return name
		}
	}
	return ""
}

func (o *options) print(env *command.Env, r *msg.BudgetsReply) error {
	if o.json {
		return printJSON(env, r)
	}
	if len(r.GetBudgets()) == 0 && !o.bare && !o.parsable {
		env.Errorf("no budget is set; an administrator sets one with: sacctmgr modify account NAME set grptresmins=gres/gpu=MINUTES")
		return nil
	}
	if !r.GetEnforced() && !o.bare && !o.parsable {
		env.Errorf("budgets are not enforced: AccountingStorageEnforce in slurm.conf does not include limits")
	}
	var rows [][]string
	if !o.bare {
		rows = append(rows, []string{"OF", "TRES", "LIMIT", "USED", "RUNNING", "LEFT"})
	}
	for _, b := range r.GetBudgets() {
		used, left := "?", "?"
		if b.GetKnown() {
			used, left = o.amount(b, b.GetUsed()), o.amount(b, b.GetLimit()-b.GetUsed())
		}
		rows = append(rows, []string{whose(b), b.GetTres(), o.amount(b, b.GetLimit()), used, o.amount(b, b.GetRunning()), left})
	}
	_, err := env.Stdout.Write(o.appendRows(nil, rows))
	return err
}

func whose(b *msg.Budget) string {
	switch {
	case b.GetQos() != "":
		return "qos " + b.GetQos()
	case b.GetUser() == "":
		return "account " + b.GetAccount()
	}
	text := "user " + b.GetUser() + " in " + b.GetAccount()
	if b.GetPartition() != "" {
		text += ", partition " + b.GetPartition()
	}
	return text
}

// amount formats an amount in the requested unit, with at most two decimals.
func (o *options) amount(b *msg.Budget, seconds int64) string {
	unit, sign := units[o.unit], ""
	if o.unit == "percent" {
		unit, sign = float64(b.GetLimit())/100, "%"
	}
	if unit == 0 { // percent of nothing
		return "-"
	}
	text := strconv.FormatFloat(float64(seconds)/unit, 'f', 2, 64)
	if text = strings.TrimSuffix(strings.TrimRight(text, "0"), "."); text == "-0" {
		text = "0"
	}
	return text + sign
}

// appendRows formats the rows, with words left-aligned and amounts right-aligned; names given by others are escaped.
func (o *options) appendRows(b []byte, rows [][]string) []byte {
	width := make([]int, 6)
	for _, r := range rows {
		for i := range r {
			r[i] = format.Escape(r[i])
			width[i] = max(width[i], len(r[i]))
		}
	}
	for _, r := range rows {
		if o.parsable {
			b = append(b, strings.Join(r, "|")+"\n"...)
			continue
		}
		for i, cell := range r {
			pad := strings.Repeat(" ", width[i]-len(cell))
			if i > 0 {
				b = append(b, "  "...)
			}
			if i < 2 {
				cell += pad
			} else {
				cell = pad + cell
			}
			b = append(b, cell...)
		}
		b = append(b, '\n')
	}
	return b
}

func printJSON(env *command.Env, r *msg.BudgetsReply) error {
	w := jsonout.New(env.Stdout, false, false)
	w.List("budgets")
	for _, b := range r.GetBudgets() {
		w.Object("")
		for _, kv := range [][2]string{{"account", b.GetAccount()}, {"user", b.GetUser()}, {"partition", b.GetPartition()},
			{"qos", b.GetQos()}, {"tres", b.GetTres()}} {
			w.Str(kv[0], kv[1])
		}
		w.Int("limit_seconds", b.GetLimit())
		if b.GetKnown() {
			w.Int("used_seconds", b.GetUsed())
			w.Int("left_seconds", b.GetLimit()-b.GetUsed())
		} else {
			w.Null("used_seconds")
			w.Null("left_seconds")
		}
		w.Int("running_seconds", b.GetRunning())
		w.Int("held_now", b.GetHeld())
		w.End()
	}
	w.End()
	w.Bool("enforced", r.GetEnforced())
	w.Int("now", r.GetNowNs()/1e9)
	return w.Close()
}
