package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sim"
)

// experiment is the configuration of `sluice sim`.
type experiment struct {
	jobs             []sim.Job
	procs, nodeProcs int
	policies         []string
	against          []string // policies to compare with
	exact            bool
	copies           int
	gaps, times      float64
	weights          *record.Weights
	qos              map[string]uint32
	halfLifeS        int64
	plots            string
}

// weightOf are the names in --weights; slurm.conf calls them PriorityWeightAge and so on.
var weightOf = map[string]func(*record.Weights) *uint32{
	"age":       func(w *record.Weights) *uint32 { return &w.Age },
	"fairshare": func(w *record.Weights) *uint32 { return &w.FairShare },
	"jobsize":   func(w *record.Weights) *uint32 { return &w.JobSize },
	"qos":       func(w *record.Weights) *uint32 { return &w.QOS },
}

func experimentOf(c *command.Call) (*experiment, error) {
	x := &experiment{procs: c.Int("procs"), nodeProcs: c.Int("node-procs"), exact: c.Text("estimates") == "exact",
		policies: []string{c.Text("policy")}, copies: c.Int("copies"), halfLifeS: 86400 * int64(c.Int("half-life")),
		plots: c.Text("plots")}
	if x.policies[0] == "all" {
		x.policies = policyNames()
	}
	if list := c.Text("against"); list != "none" && list != "" {
		x.against = strings.Split(list, ",")
	}
	for _, name := range slices.Concat(x.policies, x.against) {
		if _, ok := sim.Policies[name]; !ok {
			return nil, fmt.Errorf("unknown policy %q; policies: %s", name, strings.Join(policyNames(), ", "))
		}
	}
	switch {
	case x.procs < 1:
		return nil, fmt.Errorf("give the number of processors of the machine: --procs P")
	case !x.exact && c.Text("estimates") != "requested":
		return nil, fmt.Errorf("--estimates takes requested or exact, not %q", c.Text("estimates"))
	case c.Text("jobs-out") != "" && (len(x.policies) > 1 || x.copies > 1):
		return nil, fmt.Errorf("--jobs-out requires a single policy and --copies 1")
	case x.copies < 1 || x.copies > maxCopies:
		return nil, fmt.Errorf("--copies must be from 1 to %d, not %d", maxCopies, x.copies)
	case x.halfLifeS <= 0:
		return nil, fmt.Errorf("--half-life must be at least 1 day")
	}
	var err error
	if x.gaps, err = factor(c, "scale-gaps"); err != nil {
		return nil, err
	}
	if x.times, err = factor(c, "scale-times"); err != nil {
		return nil, err
	}
	return x, x.weigh(c)
}

// maxCopies bounds --copies.
const maxCopies = 1000

func factor(c *command.Call, option string) (float64, error) {
	f, err := strconv.ParseFloat(c.Text(option), 64)
	if err != nil || !(f > 0) {
		return 0, fmt.Errorf("--%s takes a factor such as 0.9, not %q", option, c.Text(option))
	}
	return f, nil
}

// weigh reads --weights and --qos.
func (x *experiment) weigh(c *command.Call) (err error) {
	if x.qos, err = numbers(c, "qos"); err != nil || c.Text("weights") == "" {
		return err
	}
	list, err := numbers(c, "weights")
	x.weights = &record.Weights{}
	for name, n := range list {
		field := weightOf[name]
		if field == nil {
			return fmt.Errorf("unknown factor %q in --weights: it takes age, fairshare, jobsize and qos", name)
		}
		*field(x.weights) = n
	}
	return err
}

// numbers reads an option of the form NAME=N,...
func numbers(c *command.Call, option string) (map[string]uint32, error) {
	out := map[string]uint32{}
	for word := range strings.SplitSeq(c.Text(option), ",") {
		if word == "" {
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--%s takes a list of NAME=NUMBER, not %q", option, word)
		}
		out[name] = uint32(n)
	}
	return out, nil
}

// result is the result of a policy: the report of the unmodified trace, and over its copies the figures and their increase over
// each policy that it is compared with, in percent.
type result struct {
	*sim.Report
	Copies sim.Spread            `json:"copies"`
	Over   map[string]sim.Spread `json:"percent_over"`

	against []*sim.Report // of the policies that it is compared with, on the unmodified trace
}

// run replays each copy under each policy once.
func (x *experiment) run(c *command.Call) ([]*result, error) {
	results := make([]*result, len(x.policies))
	for i := range results {
		results[i] = &result{Over: map[string]sim.Spread{}}
	}
	factors := sim.Perturbed(x.copies)
	for k, f := range factors {
		jobs, err := sim.Scale(x.jobs, f, 1)
		if err != nil {
			return nil, err
		}
		reports := map[string]*sim.Report{}
		for _, p := range slices.Concat(x.policies, x.against) {
			if reports[p] != nil {
				continue
			}
			if reports[p], err = x.replay(c, p, jobs); err != nil {
				return nil, err
			}
		}
		for i, r := range results {
			mine := reports[x.policies[i]]
			if k == len(factors)/2 { // the unmodified trace
				r.Report = mine
				for _, of := range x.against {
					r.against = append(r.against, reports[of])
				}
			}
			r.Copies.Add(mine.Figures())
			for _, of := range x.against {
				s := r.Over[of]
				s.Add(mine.Figures().Over(reports[of].Figures()))
				r.Over[of] = s
			}
		}
	}
	return results, nil
}

func (x *experiment) replay(c *command.Call, policy string, jobs []sim.Job) (*sim.Report, error) {
	return sim.Run(sim.Options{Jobs: jobs, Procs: x.procs, NodeProcs: x.nodeProcs, Policy: policy, Exact: x.exact, Weights: x.weights,
		QOS: x.qos, HalfLifeS: x.halfLifeS, Progress: progress(c, policy), Clock: time.Now})
}
