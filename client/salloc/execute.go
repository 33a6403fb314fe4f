package salloc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/terminal"
)

// execute runs the command to its end; status is that of wait(2). revoked means that the allocation has ended meanwhile.
func (s *session) execute(ctx context.Context) (status uint32, revoked bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path, err := s.path()
	if err != nil {
		s.env.Errorf("_fork_command: Unable to find command %q", s.argv[0])
		return 1 << 8, false
	}
	job := &foreground{env: s.environment(), dir: s.req.Spec.WorkDir}
	job.begin(s.env.Stdin)
	defer job.end()
	process, err := job.start(path, s.argv)
	if err != nil {
		s.env.Errorf("_fork_command: Unable to execute command %q: %v", s.argv[0], errors.Unwrap(err))
		return 1 << 8, false
	}
	exited := make(chan uint32, 1)
	go func() { exited <- job.wait(process) }()
	ended := s.alloc.Done(ctx)
	for {
		select {
		case status := <-exited:
			return status, revoked
		case <-ended:
			ended, revoked = nil, true
			s.revoke(process)
		case sig := <-s.signals:
			s.heard(process, sig)
		}
	}
}

// revoke handles the loss of the allocation, by its time limit or scancel.
func (s *session) revoke(process *os.Process) {
	s.env.Infof("Job allocation %d has been revoked.", s.alloc.ID)
	o := s.req.Run
	switch number, ok := joboptions.Signal(o.Kill); {
	case !o.KillGiven: // leave it running, as in Slurm: a shell may have other work to do
	case ok && o.Kill != "":
		s.kill(process, syscall.Signal(number))
	case command.IsTerminal(s.env.Stdin):
		s.kill(process, syscall.SIGHUP)
	default:
		s.kill(process, syscall.SIGTERM)
	}
}

// kill signals the command and its children.
func (s *session) kill(process *os.Process, number syscall.Signal) {
	_ = syscall.Kill(-process.Pid, number)
	_ = syscall.Kill(-process.Pid, syscall.SIGCONT)
}

// heard passes a signal on. The command gets SIGINT and SIGQUIT from the terminal itself, and salloc ignores them.
func (s *session) heard(process *os.Process, sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	switch number {
	case syscall.SIGINT, syscall.SIGQUIT:
	case syscall.SIGTERM, syscall.SIGHUP:
		s.kill(process, number)
		go func() { // the command must not keep the nodes
			time.Sleep(killAfter)
			s.kill(process, syscall.SIGKILL)
		}()
	default:
		_ = process.Signal(number)
	}
}

// killAfter is how long a command may take to end after salloc is told to end.
const killAfter = 30 * time.Second

// path finds the program; for the interactive step it is the srun beside this program.
func (s *session) path() (string, error) {
	name := s.argv[0]
	if s.interactive {
		if own, err := os.Executable(); err == nil {
			if path := filepath.Join(filepath.Dir(own), "srun"); executable(path) {
				return path, nil
			}
		}
	}
	if strings.Contains(name, "/") {
		if !executable(name) {
			return "", exec.ErrNotFound
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(s.env.Getenv("PATH")) {
		if path := filepath.Join(dir, name); dir != "" && executable(path) {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// foreground is the command's place on the terminal.
type foreground struct {
	env []string
	dir string
	fd  int
	own int // the process group that had the terminal; 0 = none
}

func (f *foreground) begin(stdin any) {
	fd, ok := terminal.Of(stdin)
	if !ok {
		return
	}
	if group, err := terminal.Foreground(fd); err == nil && group == syscall.Getpgrp() {
		f.fd, f.own = fd, group
	}
}

func (f *foreground) start(path string, argv []string) (*os.Process, error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if f.own != 0 {
		attr.Foreground, attr.Ctty = true, f.fd
	}
	return os.StartProcess(path, argv, &os.ProcAttr{Dir: f.dir, Env: f.env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr})
}

// wait returns the command's status. While the command is stopped, so is salloc, and the shell that started it has the terminal.
func (f *foreground) wait(p *os.Process) uint32 {
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1 << 8
		case !ws.Stopped():
			return uint32(ws)
		case f.own == 0: // no shell could continue it
		default:
			terminal.SetForeground(f.fd, f.own)
			_ = syscall.Kill(0, syscall.SIGSTOP)
			terminal.SetForeground(f.fd, p.Pid)
			_ = syscall.Kill(-p.Pid, syscall.SIGCONT)
		}
	}
}

// end takes the terminal back.
func (f *foreground) end() {
	if f.own == 0 {
		return
	}
	terminal.SetForeground(f.fd, f.own)
}
