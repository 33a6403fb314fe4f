// Package jobsubmit runs a site's job_submit.lua for each submission and each update of a job (slurm.conf(5), JobSubmitPlugins=lua).
//
// The script runs in child processes of the controller, each of which serves one call after another over its standard input and output.
// Users take turns at them by time (Turn). Inside the controller a script that never ends could be stopped, but not one that takes all
// memory: gopher-lua has no limit for that. If a script takes longer than half of MessageTimeout, or more than a gigabyte of memory, its
// job is refused and its process killed; the next call starts a new one. The script is the administrator's, so it has all of Lua, os and io
// included, as with Slurm, and runs as the controller does.
//
// It is reloaded when the file changes; if the new one is faulty, the previous one stays in use. Its changes are checked as if the user had
// made them. A runtime fault of the script refuses the job, where Slurm 22.05 accepts it: a limit that a site relies on must not depend on
// the absence of mistakes.
package jobsubmit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/program"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Turn waits for a call's turn, and returns the function that ends it.
type Turn func(ctx context.Context) (leave func(), err error)

// Plugin is the script. Its methods may be called by any goroutine.
type Plugin struct {
	script  string
	command []string // starts a worker, without the script
	turn    Turn
	log     *slog.Logger
	said    *logfile.Seldom // limits lines that requests cause
	limit   atomic.Int64    // time for a call

	workers chan *process // idle ones; nil: to be started
}

// process is a worker that has loaded the script.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// New makes a Plugin with the given number of processes. command starts a worker (Worker) when the script's path is appended.
func New(script string, command []string, processes int, turn Turn, log *slog.Logger) *Plugin {
	p := &Plugin{script: script, command: command, turn: turn, log: log, said: logfile.NewSeldom(time.Minute),
		workers: make(chan *process, processes)}
	p.SetMessageTimeout(10)
	for range processes {
		p.workers <- nil
	}
	return p
}

// SetMessageTimeout bounds the time of a call, so that one that waits for another is answered in time.
func (p *Plugin) SetMessageTimeout(seconds int64) {
	p.limit.Store(max(seconds, 2) * int64(time.Second) / 2)
}

// Check has all processes load the script: a controller does not start with a script that cannot be loaded.
func (p *Plugin) Check() error {
	var errs []error
	for range cap(p.workers) {
		w, err := p.ready(<-p.workers)
		p.workers <- w
		errs = append(errs, err)
	}
	return errs[0]
}

// Close ends the workers.
func (p *Plugin) Close() {
	for range cap(p.workers) {
		(<-p.workers).kill()
		p.workers <- nil
	}
}

// ready starts a worker unless there is one. After an error there is none.
func (p *Plugin) ready(w *process) (*process, error) {
	if w != nil {
		return w, nil
	}
	cmd := exec.Command(p.command[0], append(p.command[1:len(p.command):len(p.command)], p.script)...)
	cmd.Env, cmd.Dir, cmd.Stderr = []string{"PATH=" + program.Path, "TZ=" + os.Getenv("TZ")}, "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, inherit.Start(cmd)); err != nil {
		return nil, fmt.Errorf("cannot start the interpreter of %s: %w", p.script, err)
	}
	w = &process{cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}
	r, err := w.answer(nil, time.Duration(p.limit.Load()))
	if err == nil && r.Fault != "" {
		err = errors.New(r.Fault)
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("cannot use %s: %w", p.script, err)
	}
	p.tell(r.Log)
	return w, nil
}

// answer sends a request, if any, and waits for the answer. After an error the worker is useless.
func (w *process) answer(q *request, limit time.Duration) (r reply, err error) {
	t := time.AfterFunc(limit, func() { _ = w.cmd.Process.Kill() })
	if q != nil {
		q.Limit = limit
		err = w.enc.Encode(q)
	}
	if err == nil {
		err = w.dec.Decode(&r)
	}
	if late := !t.Stop(); late {
		err = fmt.Errorf("it took longer than %v", limit)
	} else if err != nil {
		err = fmt.Errorf("its interpreter has exited, perhaps for lack of memory (the limit is %d MiB): %w", workerMemory>>20, err)
	}
	return r, err
}

func (w *process) kill() {
	if w != nil {
		_ = w.in.Close()
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// tell logs the script's lines.
func (p *Plugin) tell(lines []said) {
	for _, l := range lines {
		level := map[string]slog.Level{"error": slog.LevelError, "debug": slog.LevelDebug}[l.Level]
		p.log.Log(context.Background(), level, "job_submit.lua: "+l.Text)
	}
}

// ask calls the script's function.
func (p *Plugin) ask(ctx context.Context, q *request) (reply, *pb.Problem) {
	leave, err := p.turn(ctx)
	if err != nil {
		return reply{}, pb.NewProblem(pb.CodeRateLimited, "the caller has gone")
	}
	defer leave()
	w, err := p.ready(<-p.workers) // operators, who have no turns, wait for at most one call
	var r reply
	if err == nil {
		if r, err = w.answer(q, time.Duration(p.limit.Load())); err != nil {
			w.kill()
			w = nil
		}
	}
	p.workers <- w
	if err == nil {
		p.tell(r.Log)
		if r.Fault != "" {
			err = errors.New(r.Fault)
		}
	}
	if err != nil {
		if due, left := p.said.Says(fmt.Sprint(q.Function, q.UID)); due {
			p.log.Error("job_submit.lua failed: a request is refused", "function", q.Function, "uid", q.UID, "err", err, "left_out", left)
		}
		return r, pb.NewProblem(pb.CodeSubmitPlugin, "job_submit.lua failed: %v", err).WithHint("tell your administrator")
	}
	return r, nil
}

// Submit has slurm_job_submit check a submission, and applies its changes to r. The lines are for the user.
func (p *Plugin) Submit(ctx context.Context, v *state.View, r *pb.SubmitRequest) (user []string, refusal *pb.Problem) {
	q := &request{Function: "slurm_job_submit", UID: r.Spec.Uid, Cluster: v.Settings.Cluster, Parts: partitions(v), Desc: map[string]any{},
		Env: map[string]string{}}
	for name, f := range fields {
		if value := f.get(r.Spec); value != nil {
			q.Desc[name] = value
		}
	}
	q.Desc["script"] = string(r.Script)
	for _, kv := range r.Env {
		name, value, _ := strings.Cut(kv, "=")
		q.Env[name] = value
	}
	out, refusal := p.ask(ctx, q)
	if refusal == nil {
		refusal = refused(out.RC, out.User)
	}
	if refusal != nil {
		return nil, refusal
	}
	return out.User, p.apply(r, &out)
}

// refused converts a return code other than SUCCESS to a refusal: Slurm's error with that number, or an unspecified one.
func refused(rc float64, user []string) *pb.Problem {
	if rc == 0 {
		return nil
	}
	code := pb.CodeSubmitPlugin
	if c := pb.Code(rc); rc > 0 && c.Phrase() != "" {
		code = c
	}
	problem := pb.NewProblem(code, "")
	problem.Lead = strings.Join(user, "\n")
	return problem
}

func (p *Plugin) apply(r *pb.SubmitRequest, out *reply) *pb.Problem {
	for _, name := range sortedKeys(out.Desc) {
		value := out.Desc[name]
		if name == "script" {
			if text, ok := value.(string); ok {
				r.Script = []byte(text)
			}
			continue
		}
		f, known := fields[name]
		if !known || f.set == nil {
			if due, left := p.said.Says("field " + name); due {
				p.log.Error("job_submit.lua sets a field of job_desc that cannot be set", "field", name, "left_out", left)
			}
			continue
		}
		if err := f.set(r.Spec, value); err != nil {
			return pb.NewProblem(pb.CodeSubmitPlugin, "job_submit.lua sets %s: %v", name, err)
		}
	}
	if len(out.Env) > 0 {
		r.Env = changedEnv(r.Env, out.Env)
	}
	return nil
}

func changedEnv(env []string, changes map[string]*string) []string {
	var now []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !has(changes, name) {
			now = append(now, kv)
		}
	}
	for _, name := range sortedKeys(changes) {
		if v := changes[name]; v != nil && name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(*v, "\x00") {
			now = append(now, name+"="+*v)
		}
	}
	return now
}

func has[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// partitions returns part_list for the script.
func partitions(v *state.View) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, p := range v.Partitions() {
		limit := func(s uint32, unset float64) float64 {
			switch s {
			case 0:
				return unset
			case pb.Unlimited:
				return infinite
			}
			return float64(s / 60)
		}
		f := map[string]any{"name": p.Name, "max_time": limit(p.MaxTimeS, infinite), "default_time": limit(p.DefaultTimeS, noVal),
			"flag_default": map[bool]float64{true: 1}[p.IsDefault], "priority_tier": float64(p.PriorityTier),
			"priority_job_factor": float64(p.PriorityJobFactor),
			"nodes":               p.Nodes, "total_nodes": float64(p.TotalNodes), "total_cpus": float64(p.TotalCpus),
			"max_nodes": float64(p.MaxNodes),
			"min_nodes": float64(p.MinNodes), "state_up": map[bool]float64{true: 3}[p.State == "UP"], "allow_groups": p.AllowGroups,
			"allow_accounts": p.AllowAccounts, "allow_qos": p.AllowQos, "deny_accounts": p.DenyAccounts, "deny_qos": p.DenyQos}
		for k, value := range f {
			if value == "" {
				delete(f, k)
			}
		}
		out[p.Name] = f
	}
	return out
}
