package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	grammar "github.com/sluice-hpc/sluice/conf/container"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Containers of bundles: --container, as configured in oci.conf(5). All of it runs as the user. Before any task, Setup checks
// that the bundle can be run; each task makes its own bundle from it (bundle.go) and becomes the runtime; finally End cleans up.

// oci is the container of one task.
type oci struct {
	*Job
	v   grammar.Values
	dir string   // of the task
	env []string // for the runtime
}

func newOCI(j *Job, env []string) (*oci, error) {
	o := &oci{Job: j, v: grammar.Values{Job: j.ID, Step: j.Number, Task: j.Task, Node: j.Node, UID: uint32(os.Getuid()),
		User: strconv.Itoa(os.Getuid()), Spool: j.Step}}
	if a, ok := passwd.User(o.v.User); ok && a.Name != "" {
		o.v.User = a.Name
	}
	if p := j.Runtime.ContainerPath; p != "" {
		path, err := o.v.Expand(p)
		if err != nil {
			return nil, fmt.Errorf("ContainerPath of oci.conf: %w", err)
		}
		o.v.Spool = path
	}
	o.dir = filepath.Join(o.v.Spool, "task-"+strconv.FormatUint(uint64(j.Task), 10))
	bundle, err := filepath.Abs(j.Bundle)
	if err != nil {
		return nil, err
	}
	o.Bundle, o.v.Bundle = bundle, o.dir
	if j.Runtime.IgnoreConfig {
		o.v.Bundle, o.v.Root = bundle, bundle
		if info, err := os.Stat(filepath.Join(bundle, "rootfs")); err == nil && info.IsDir() {
			o.v.Root = filepath.Join(bundle, "rootfs")
		}
	}
	if env, err = exclude("RunTimeEnvExclude", j.Runtime.RuntimeEnvExclude, env); err != nil {
		return nil, err
	}
	for _, kv := range env { // a runtime that reaches the user's systemd could move processes out of their cgroup
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS":
		default:
			o.env = append(o.env, kv)
		}
	}
	o.env = append(o.env, "PATH="+programs, "XDG_RUNTIME_DIR="+j.Run)
	return o, nil
}

// checkBundle is Setup for the container of a bundle.
func checkBundle(j *Job, env []string) error {
	o, err := newOCI(j, env)
	if err == nil {
		_, err = exclude("EnvExclude", j.Runtime.EnvExclude, nil)
	}
	if err != nil {
		return err
	}
	if j.Runtime.IgnoreConfig {
		if _, err := os.Stat(o.Bundle); err != nil {
			return err
		}
	} else if c, err := readConfig(o.Bundle); err != nil {
		return err
	} else if _, err := c.root(o.Bundle); err != nil {
		return err
	}
	if err := os.MkdirAll(o.v.Spool, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory for bundles: %w", err)
	}
	return nil
}

// prepare creates the task's bundle, and the file of its environment.
func (o *oci) prepare(argv, env []string) error {
	unix.Umask(0o077)
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory of a bundle: %w", err)
	}
	env, err := exclude("EnvExclude", o.Runtime.EnvExclude, env)
	if err != nil {
		return err
	}
	o.v.Command = argv
	if !o.Runtime.IgnoreConfig {
		if env, err = o.writeConfig(env); err != nil {
			return err
		}
	}
	if o.Runtime.EnvFile == "" {
		return nil
	}
	o.v.EnvFile = filepath.Join(o.dir, "environment")
	end, text := "\x00", []byte(nil)
	if o.Runtime.EnvFile == "newline" {
		end = "\n"
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.Contains(kv, "\n") })
	}
	for _, kv := range env {
		text = append(append(text, kv...), end...)
	}
	if err := os.WriteFile(o.v.EnvFile, text, 0o600); err != nil {
		return fmt.Errorf("cannot write the environment of a container: %w", err)
	}
	return nil
}

// runBundle becomes the runtime that runs argv in a container of the bundle, or supervises it. It returns only on failure.
func runBundle(j *Job, argv, env []string) error {
	o, err := newOCI(j, env)
	if err != nil {
		return err
	}
	if err := o.prepare(argv, env); err != nil {
		return err
	}
	if err := os.Chdir(o.dir); err != nil {
		return err
	}
	if j.Runtime.Run == "" {
		return o.supervise()
	}
	command, err := o.v.Expand(j.Runtime.Run)
	if err != nil {
		return fmt.Errorf("RunTimeRun of oci.conf: %w", err)
	}
	if plain(command) { // then signals and the exit code are the runtime's, not a shell's
		command = "exec " + command
	}
	err = syscall.Exec(shell, []string{shell, "-c", command}, o.env)
	return fmt.Errorf("cannot execute %s: %w", shell, err)
}

const shell = "/bin/sh" // which Slurm uses for these commands

// plain reports whether a command needs the shell for nothing but to find its program.
func plain(command string) bool {
	quote := rune(0)
	for _, c := range command {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.ContainsRune(";&|()<>`\\\n", c):
			return false
		}
	}
	words := strings.Fields(command)
	if len(words) == 0 || quote != 0 {
		return false
	}
	if strings.Contains(words[0], "/") {
		return unix.Access(words[0], unix.X_OK) == nil
	}
	return program(words[0]) != ""
}

// command returns one of the runtime's commands, run by the shell.
func (o *oci) command(ctx context.Context, key, pattern string) (*exec.Cmd, error) {
	text, err := o.v.Expand(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s of oci.conf: %w", key, err)
	}
	if plain(text) {
		text = "exec " + text
	}
	cmd := exec.CommandContext(ctx, shell, "-c", text)
	cmd.Env, cmd.WaitDelay = o.env, time.Second
	return cmd, nil
}

// status is a runtime's report on a container (OCI runtime specification, "State").
type status struct {
	Status string `json:"status"`
	PID    int    `json:"pid"`
}

func (o *oci) query(ctx context.Context) (s status, err error) {
	cmd, err := o.command(ctx, "RunTimeQuery", o.Runtime.Query)
	if err != nil {
		return s, err
	}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(out), &s)
	}
	return s, err
}

// ociPatience is how long a runtime may take for an operation, including cleanup.
const ociPatience = time.Minute

// supervise creates and starts the container, and ends like its first process, which becomes this process's child.
func (o *oci) supervise() error {
	ctx, cancel := context.WithTimeout(context.Background(), ociPatience)
	defer cancel()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded...)
	operate := func(key, pattern string) error {
		cmd, err := o.command(ctx, key, pattern)
		if err == nil {
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr // files, which create passes on to the container
			err = cmd.Run()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}
	if err := operate("RunTimeCreate", o.Runtime.Create); err != nil {
		return err
	}
	var s status
	for {
		var err error
		if s, err = o.query(ctx); err == nil && s.Status != "creating" && s.PID > 0 {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the container has not been created within %v: RunTimeQuery says %q, %v", ociPatience, s.Status, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for {
		err := operate("RunTimeStart", o.Runtime.Start)
		if err == nil {
			break
		}
		// Signals to all processes of the step may have hit this process, before or after it started the container, and the query
		// as well.
		s, qerr := o.query(ctx)
		for signaled(qerr) && ctx.Err() == nil {
			s, qerr = o.query(ctx)
		}
		if qerr == nil && s.Status != "created" {
			break
		}
		if !signaled(err) || ctx.Err() != nil {
			return err
		}
	}
	go func() {
		for sig := range signals {
			_ = unix.Kill(s.PID, sig.(syscall.Signal))
		}
	}()
	var ws unix.WaitStatus
	_, err := unix.Wait4(s.PID, &ws, 0, nil)
	for err == unix.EINTR {
		_, err = unix.Wait4(s.PID, &ws, 0, nil)
	}
	switch {
	case err != nil:
		return fmt.Errorf("cannot wait for the container's process %d, which RunTimeQuery names: %w; use RunTimeRun", s.PID, err)
	case ws.Signaled():
		signal.Reset(ws.Signal())
		_ = unix.Kill(os.Getpid(), ws.Signal())
		time.Sleep(time.Second) // until the signal has arrived
		os.Exit(128 + int(ws.Signal()))
	}
	os.Exit(ws.ExitStatus())
	return nil
}

// signaled reports whether a signal ended a command, or a program that a shell ran for it.
func signaled(err error) bool {
	var x *exec.ExitError
	return errors.As(err, &x) && (!x.Exited() || x.ExitCode() > 128)
}

var forwarded = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM, unix.SIGALRM, unix.SIGWINCH}

// End cleans up a task's container after the end of its first process pid.
func End(j *Job, pid int, env []string) error {
	o, err := newOCI(j, env)
	if err != nil {
		return err
	}
	o.v.PID = pid
	if c, err := readConfig(o.Bundle); err == nil && !j.Runtime.IgnoreConfig {
		o.v.Root, _ = c.root(o.Bundle)
	}
	do := func(key, pattern string) {
		ctx, cancel := context.WithTimeout(context.Background(), ociPatience)
		defer cancel()
		if cmd, err := o.command(ctx, key, pattern); err == nil {
			_ = cmd.Run() // there may be nothing left
		}
	}
	if j.Runtime.Query != "" && j.Runtime.Kill != "" {
		ctx, cancel := context.WithTimeout(context.Background(), ociPatience)
		defer cancel()
		if s, err := o.query(ctx); err == nil && s.Status == "running" {
			do("RunTimeKill", j.Runtime.Kill)
		}
	}
	if j.Runtime.Delete != "" {
		do("RunTimeDelete", j.Runtime.Delete)
	}
	if j.Runtime.DisableCleanup {
		return nil
	}
	err = os.RemoveAll(o.dir)
	if j.Runtime.ContainerPath != "" {
		if rerr := os.Remove(o.v.Spool); rerr != nil && !errors.Is(rerr, unix.ENOTEMPTY) && !os.IsNotExist(rerr) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
