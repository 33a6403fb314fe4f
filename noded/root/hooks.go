package root

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/program"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// healthTimeout bounds HealthCheckProgram (slurm.conf(5)); healthRecord names its process in the records of package hook.
const (
	healthTimeout = 60 * time.Second
	healthRecord  = "health-check"
)

// unkillableTimeout bounds UnkillableStepProgram: it may examine what blocks the processes, but must not block a worker for ever.
const unkillableTimeout = 5 * time.Minute

// hook runs a program of the administrator. Its path comes from the controller's settings, so the policy checks it each time: the
// file may have changed.
func (r *Root) hook(ctx context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	h := o.GetHook()
	env, err := r.judge.Env(h.Env, r.fixed)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	set := r.settings
	r.mu.Unlock()
	name := ""
	if h.Key != nil {
		name = folder.Name(h.Key)
	}
	switch h.Kind {
	case nodepb.HookKind_HOOK_PROLOG:
		return r.prolog(ctx, name, h.Remember, set, env)
	case nodepb.HookKind_HOOK_EPILOG:
		return r.epilog(ctx, name, h.Key, set, env)
	case nodepb.HookKind_HOOK_HEALTH:
		r.check(ctx, healthRecord, r.local(set.GetHealthCheck()), env, healthTimeout)
	case nodepb.HookKind_HOOK_UNKILLABLE:
		r.unkillable(ctx, name, h.Key, set, env)
	case nodepb.HookKind_HOOK_REBOOT:
		return nil, r.reboot(ctx, h.Program)
	}
	return nil, nil
}

func hookTimeout(set *pb.NodeSettings) time.Duration {
	return time.Duration(set.GetPrologEpilogTimeoutS()) * time.Second
}

func (r *Root) prolog(ctx context.Context, name string, l *pb.LaunchSpec, set *pb.NodeSettings,
	env []string) (*nodepb.Answer, error) {
	if why := r.steps.Ready(); why != "" { // the step could not start after it
		return &nodepb.Answer{Fault: why}, errors.New(why)
	}
	if l != nil {
		if err := r.hooks.Remember(name, l); err != nil {
			return &nodepb.Answer{Fault: "SlurmdSpoolDir: " + err.Error()}, err
		}
	}
	if set.GetProlog() == "" {
		return nil, nil
	}
	return nil, r.hooks.Prolog(ctx, name, r.local(set.GetProlog()), env, hookTimeout(set))
}

// epilog runs the epilog, then releases the step's devices. An error means that it was cancelled.
func (r *Root) epilog(ctx context.Context, name string, key *pb.StepKey, set *pb.NodeSettings, env []string) (*nodepb.Answer, error) {
	failed := ""
	if set.GetEpilog() != "" {
		var err error
		if failed, err = r.hooks.Epilog(ctx, name, r.local(set.GetEpilog()), env, hookTimeout(set)); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[agent.KeyOf(key)]; k != nil && k.rep.GetPhase() == pb.StepPhase_STEP_ENDED {
		r.finish(k)
	}
	return &nodepb.Answer{Failed: failed}, nil
}

// check runs a program that belongs to no job, or to a job that cannot be ended. The program acts on its own findings.
func (r *Root) check(ctx context.Context, name, path string, env []string, timeout time.Duration) {
	if path == "" {
		return
	}
	if err := r.hooks.Check(ctx, name, path, env, timeout); err != nil && ctx.Err() == nil {
		r.log.Error("a program of the administrator failed", "program", path, "for", name, "err", err)
	}
}

// unkillable runs UnkillableStepProgram once per step, even if a later noded-link asks again.
func (r *Root) unkillable(ctx context.Context, name string, key *pb.StepKey, set *pb.NodeSettings, env []string) {
	r.mu.Lock()
	k := r.known[agent.KeyOf(key)]
	again := k != nil && k.stuck
	if k != nil {
		k.stuck = true
	}
	r.mu.Unlock()
	if again {
		return
	}
	r.check(ctx, name+".unkillable", r.local(set.GetUnkillableProgram()), env, unkillableTimeout)
	if ctx.Err() != nil && k != nil { // it was cancelled
		r.mu.Lock()
		k.stuck = false
		r.mu.Unlock()
	}
}

// reboot runs RebootProgram in a session of its own and waits for it until ctx ends. The program outlives both noded-link and
// this daemon.
func (r *Root) reboot(ctx context.Context, command string) error {
	words := strings.Fields(r.localWords(command))
	if len(words) == 0 {
		return errors.New("no program")
	}
	if err := r.judge.Reboot(words); err != nil {
		return err
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + program.Path, "SLURMD_NODENAME=" + r.o.Node}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	r.mu.Lock()
	again := r.rebooting
	r.rebooting = true
	r.mu.Unlock()
	if again { // an earlier noded-link has ordered it
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		out, err := inherit.CombinedOutput(cmd)
		if text := strings.TrimSpace(string(out)); err != nil && text != "" {
			err = errors.New(err.Error() + ": " + text)
		}
		r.mu.Lock()
		r.rebooting = false
		r.mu.Unlock()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// configure applies the controller's settings.
func (r *Root) configure(set *pb.NodeSettings) {
	r.mu.Lock()
	same := proto.Equal(r.settings, set)
	r.settings = set
	r.mu.Unlock()
	if !same {
		if err := r.sp.saveSettings(set); err != nil {
			r.log.Error("cannot store the controller's settings: no epilog will run after a restart without the controller", "err", err)
		}
	}
	if r.o.Level != nil {
		r.o.Level.Set(slog.Level(set.GetLogLevel()))
	}
	r.gpus.Configure(set.GetGres(), set.GetGpu())
	r.hooks.Serial(set.GetSerialHooks())
	r.setPrivacy(set.GetPrivacy())
	r.showUses()
}

// reopen reopens the log. Its level comes from the controller.
func (r *Root) reopen() {
	if r.o.Reload != nil {
		_, _ = r.reload() // it logs its errors
	}
}
