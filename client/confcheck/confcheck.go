// Package confcheck is `sluice conf check`: the faults of a slurm.conf, and its keys without effect.
package confcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/sandbox"
	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/program"
)

// Verb is `sluice conf`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "conf", Line: "check a slurm.conf (conf check FILE)",
		Verbs: []*command.Verb{{
			Name: "check", Args: "[FILE]", Line: "report faults in a slurm.conf, and keys that have no effect",
			Page: command.Page{
				About: `Reports faults in a slurm.conf, and keys that have no effect. Reads FILE (default: SLURM_CONF, else
` + conf.DefaultPath + `, else the file that this host's node daemon fetched) and the gres.conf, cgroup.conf and
topology.conf beside it, loads job_submit.lua as the controller does, and checks that the programs and groups that
they name exist on this machine.

It prints keys and words without effect, warnings, advice and faults. With a fault the exit code is 1, and the controller
does not start.`,
				Examples: `  sluice conf check                      the configuration of this host's cluster
  sluice conf check /tmp/slurm.conf      before it is installed
  sluice conf check | grep ignored       the keys that have no effect
`,
			},
			Run: check,
		}},
	}
}

func check(c *command.Call) error {
	path := client.ConfPath(c.Getenv)
	if len(c.Args) > 0 {
		path = c.Args[0]
		f, err := os.Open(path)
		if err != nil { // conf.Load would advise setting SLURM_CONF
			return fmt.Errorf("cannot read configuration %s: %w", path, errors.Unwrap(err))
		}
		f.Close()
	}
	cfg, err := conf.Load(path, conf.Options{})
	var faults conf.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	var notLoaded string
	if script := cfg.JobSubmitScript(); script != "" && len(faults) == 0 {
		fault := ""
		if fault, notLoaded = loadScript(script, cfg.MessageTimeoutSec); fault != "" {
			faults = append(faults, cfg.ScriptFault(fault))
		}
	}
	for _, i := range cfg.Ignored {
		fmt.Fprintf(c.Stdout, "%s:%d: %s\n", i.File, i.Line, i)
	}
	for _, w := range slices.Concat(cfg.Warnings, cfg.OnThisMachine()) {
		fmt.Fprintf(c.Stdout, "warning: %s\n", w.Error())
	}
	if notLoaded != "" {
		fmt.Fprintf(c.Stdout, "warning: %s\n", notLoaded)
	}
	for _, a := range cfg.Advice {
		fmt.Fprintf(c.Stdout, "advice: %s\n", a.Error())
	}
	if len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintln(c.Stdout, f.Error())
		}
		return fmt.Errorf("%s: %s", path, command.Plural(len(faults), "fault"))
	}
	fmt.Fprintf(c.Stdout, "%s: no faults; cluster %s, %s, %s\n", path, cfg.ClusterName,
		command.Plural(len(cfg.Nodes), "node"), command.Plural(len(cfg.Partitions), "partition"))
	return nil
}

// loadScript makes the controller's program load job_submit.lua, as the controller does at startup (ctld.PluginCommand), because
// the commands have no interpreter. fault says why the script is unusable, unknown why it could not be checked. Loading executes
// the script: root does that as the script's owner, who may be another user.
func loadScript(script string, messageTimeoutS int64) (fault, unknown string) {
	unusable := func(why any) (string, string) { return fmt.Sprintf("cannot use %s: %v", script, why), "" }
	f, err := os.Open(script)
	if err != nil {
		return unusable(errors.Unwrap(err))
	}
	defer f.Close()
	ctld, err := sandbox.Program("sluice-ctld")
	if err != nil {
		return "", script + " was not loaded: sluice-ctld is not installed on this host; check it on the controller's host"
	}
	limit := time.Duration(max(messageTimeoutS, 2)) * time.Second / 2
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	const opened = "/proc/self/fd/0" // independent of the permissions of its directories; without a request on stdin the interpreter exits
	cmd := exec.CommandContext(ctx, ctld, "job-submit", opened)
	cmd.Env, cmd.Dir, cmd.Stdin = []string{"PATH=" + program.Path, "TZ=" + os.Getenv("TZ")}, "/", f
	if info, err := f.Stat(); err == nil && os.Geteuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	out, err := cmd.Output()
	var r struct {
		Fault string `json:"fault"`
	}
	switch {
	case ctx.Err() != nil:
		return unusable(fmt.Sprintf("it took longer than %v", limit))
	case json.Unmarshal(out, &r) != nil:
		return unusable(fmt.Sprintf("its interpreter has exited: %v", err))
	case r.Fault != "":
		return unusable(strings.ReplaceAll(r.Fault, opened, filepath.Base(script)))
	}
	return "", ""
}
