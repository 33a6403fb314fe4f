// Package powersave runs SuspendProgram, ResumeProgram and ResumeFailProgram (slurm.conf(5)).
//
// It is level-triggered: the durable state says which program has to run for which node (NodeRecord.PowerProgram), and only the writer
// decides that (reactor, power.go). If a program was running when the controller was killed or ended, the next controller runs it again.
// One run covers all nodes that are due at that moment; no two programs run for one node at a time.
//
// The program's actions and exit status decide nothing: the writer goes by timeouts and by the nodes that register. Rejected: exit
// statuses, which say little about a host; boot ids alone, which do not change when a host was only asleep or its daemon was started by
// hand.
//
// Programs run as SlurmUser, with an environment built from nothing, for at most the longer of SuspendTimeout and ResumeTimeout. Their
// output is logged.
package powersave

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// atOnce bounds the concurrent programs; nodes that become due meanwhile wait for the next one.
const atOnce = 16

// retryAfter is the pause when the writer accepts no command.
const retryAfter = 100 * time.Millisecond

// Settings are settings of slurm.conf, read for each program.
type Settings struct {
	Suspend, Resume, Fail string // programs, "" for none
	Timeout               time.Duration
	Cluster               string
	Env                   []string // so that commands find the controller
	UID, GID              uint32   // SlurmUser
}

// Runner runs the programs. Make it with New; Changed is a loop observer, Run works until its context ends.
type Runner struct {
	dir      string
	settings func() Settings
	view     func() *state.View
	do       func(context.Context, reactor.Command) (any, error)
	log      *slog.Logger
	wake     chan struct{}

	running map[string]bool // nodes for which a program runs; only for Run
	runs    int
	started uint64
	ended   chan []owed
}

// owed is a node for which a program has to run.
type owed struct {
	node string
	at   int64 // NodeRecord.PowerNs
}

// New makes a Runner; dir, which it creates, is for its records.
func New(dir string, settings func() Settings, view func() *state.View, do func(context.Context, reactor.Command) (any, error),
	log *slog.Logger) *Runner {
	return &Runner{dir: dir, settings: settings, view: view, do: do, log: log, wake: make(chan struct{}, 1), running: map[string]bool{},
		ended: make(chan []owed)}
}

// Changed wakes Run when a commit changed nodes. It does not block.
func (r *Runner) Changed(c state.Change) {
	due := c.Structure
	for _, name := range c.Nodes {
		n := c.View.Node(name)
		due = due || n != nil && n.PowerProgram != ""
	}
	if !due {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run starts programs until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := program.Records(r.dir, "SuspendProgram and ResumeProgram", r.log); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.json")) // of programs that have ended
	for _, path := range files {
		_ = os.Remove(path)
	}
	for {
		if ctx.Err() == nil {
			r.look(ctx)
		}
		select {
		case <-ctx.Done():
			for r.runs > 0 {
				<-r.ended
				r.runs--
			}
			return nil
		case <-r.wake:
		case list := <-r.ended:
			r.runs--
			for _, o := range list {
				delete(r.running, o.node)
			}
		}
	}
}

// look starts the programs that are due.
func (r *Runner) look(ctx context.Context) {
	v := r.view()
	due := map[string][]owed{}
	for _, n := range v.Nodes() {
		if n.PowerProgram != "" && !r.running[n.Name] { // otherwise it is looked at again when that has ended
			due[n.PowerProgram] = append(due[n.PowerProgram], owed{n.Name, n.PowerNs})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(due)) {
		if r.runs >= atOnce {
			return
		}
		list := due[name]
		for _, o := range list {
			r.running[o.node] = true
		}
		r.runs++
		r.started++
		record := filepath.Join(r.dir, fmt.Sprintf("%s.%d", name, r.started))
		go func() {
			r.one(ctx, v, name, list, record)
			r.ended <- list
		}()
	}
}

// one runs a program to its end and reports to the writer; it reports nothing when the controller ends first.
func (r *Runner) one(ctx context.Context, v *state.View, name string, list []owed, record string) {
	done := reactor.PowerProgramDone{Program: name, Nodes: make(map[string]int64, len(list))}
	nodes := make([]string, len(list))
	for i, o := range list {
		nodes[i], done.Nodes[o.node] = o.node, o.at
	}
	r.program(ctx, v, name, nodes, record)
	for ctx.Err() == nil {
		_, err := r.do(ctx, done)
		var p *pb.Problem
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.As(err, &p) {
			r.log.Error("cannot record the end of a program: trying again", "program", name, "err", err)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

func (r *Runner) program(ctx context.Context, v *state.View, name string, nodes []string, record string) {
	s := r.settings()
	path, key := s.Suspend, "SuspendProgram"
	switch name {
	case reactor.PowerResume:
		path, key = s.Resume, "ResumeProgram"
	case reactor.PowerFail:
		path, key = s.Fail, "ResumeFailProgram"
	}
	if path == "" { // removed from slurm.conf meanwhile
		return
	}
	list := hostlist.FoldSorted(nodes)
	p := program.Program{Path: path, Args: []string{list}, Record: record + ".pid",
		Env: append([]string{"PATH=" + program.Path, "SLURM_CLUSTER_NAME=" + s.Cluster}, s.Env...)}
	if os.Geteuid() == 0 && s.UID != 0 {
		p.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID}
	}
	if name == reactor.PowerResume {
		file := record + ".json"
		defer func() { _ = os.Remove(file) }()
		if err := os.WriteFile(file, resumeFile(v, nodes), 0o600); err != nil {
			r.log.Error("cannot write the input of ResumeProgram", "file", file, "err", err)
		} else {
			p.Env = append(p.Env, "SLURM_RESUME_FILE="+file)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout,
		fmt.Errorf("it ran longer than SuspendTimeout and ResumeTimeout, %v", s.Timeout))
	defer cancel()
	failpoint.Hit("power." + name)
	r.log.Info(key+" runs", "program", path, "nodes", list)
	out, err := program.Run(ctx, p)
	failpoint.Hit("power." + name + ".end")
	switch out = strings.TrimSpace(out); {
	case err != nil:
		r.log.Error(key+" failed", "program", path, "nodes", list, "err", err, "output", out)
	default:
		r.log.Info(key+" ended", "program", path, "nodes", list, "output", out)
	}
}

// resumeJob is a job in the file of SLURM_RESUME_FILE, with the names of Slurm 22.05 (nodes) and those of later versions.
type resumeJob struct {
	Extra         *string `json:"extra"`
	Features      *string `json:"features"`
	ID            uint32  `json:"job_id"`
	Nodes         string  `json:"nodes"`
	NodesAlloc    string  `json:"nodes_alloc"`
	NodesResume   string  `json:"nodes_resume"`
	Oversubscribe string  `json:"oversubscribe"`
	Partition     string  `json:"partition"`
	Reservation   *string `json:"reservation"`
}

// resumeFile lists the nodes to power up and the jobs that need them.
func resumeFile(v *state.View, nodes []string) []byte {
	resumed := map[string]bool{}
	jobs := map[uint32]bool{}
	for _, name := range nodes {
		resumed[name] = true
		if n := v.Node(name); n != nil {
			for _, id := range n.Jobs {
				jobs[id] = true
			}
		}
	}
	file := struct {
		All       string      `json:"all_nodes"`
		AllResume string      `json:"all_nodes_resume"`
		Jobs      []resumeJob `json:"jobs"`
	}{hostlist.FoldSorted(nodes), hostlist.FoldSorted(nodes), []resumeJob{}}
	given := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		j := v.Jobs.Get(id)
		if j == nil {
			continue
		}
		var here []string
		for _, a := range j.Alloc {
			if resumed[a.Node] && !a.Ended {
				here = append(here, a.Node)
			}
		}
		resv := j.ResvName
		if resv == "" {
			resv = j.Spec.GetReservation()
		}
		file.Jobs = append(file.Jobs, resumeJob{Extra: given(j.Spec.GetExtra()), Features: given(j.Spec.GetFeatures()), ID: j.Id,
			Nodes: j.NodeList, NodesAlloc: j.NodeList, NodesResume: hostlist.FoldSorted(here), Oversubscribe: cmp.Or(j.Oversubscribe, "OK"),
			Partition: j.Partition, Reservation: given(resv)})
	}
	b, _ := json.Marshal(file) // cannot fail: strings and numbers
	return append(b, '\n')
}
