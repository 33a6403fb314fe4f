package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What the spool must have left for a launch to be accepted: a script and its environment have up to 5 MiB, records need a few KiB.
const (
	leastSpace  = 8 << 20
	leastInodes = 32
)

// probeTimeout is how long the spool may take to write a small file. It is long: a disk may be busy.
const probeTimeout = time.Minute

// Why a node cannot start steps, as its reason says it; the first is Slurm's.
const (
	spoolFull    = "SlurmdSpoolDir is full"
	spoolNoWrite = "SlurmdSpoolDir is read-only"
	spoolNoExec  = "SlurmdSpoolDir is mounted noexec"
	spoolGone    = "SlurmdSpoolDir is missing"
	spoolHangs   = "SlurmdSpoolDir does not answer"
)

// Ready says why no step can be started now as far as that costs nothing to find out: "" means that it can be tried.
func (r *Runner) Ready() string {
	var fs unix.Statfs_t
	err := unix.Statfs(r.pool.dir, &fs)
	if err == nil {
		err = unix.Access(filepath.Join(r.o.Spool, folder.Steps), unix.F_OK)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return spoolGone
	case err != nil:
		return "SlurmdSpoolDir: " + err.Error()
	case fs.Flags&unix.ST_RDONLY != 0:
		return spoolNoWrite
	case fs.Flags&unix.ST_NOEXEC != 0:
		return spoolNoExec
	}
	free := fs.Bavail
	if os.Geteuid() == 0 {
		free = fs.Bfree
	}
	if free*uint64(fs.Bsize) < leastSpace || fs.Files > 0 && fs.Ffree < leastInodes {
		return spoolFull
	}
	return ""
}

// Fault looks whether steps can be started: whether a file can be written in the spool, and with all, after a launch has failed, also
// whether a process can be made, and a cgroup. It returns when ctx ends or the spool does not answer.
func (r *Runner) Fault(ctx context.Context, all bool) string {
	late := time.NewTimer(probeTimeout)
	defer late.Stop()
	select {
	case r.probing <- struct{}{}:
	case <-ctx.Done():
		return ""
	case <-late.C: // an earlier look hangs
		return spoolHangs
	}
	found := make(chan string, 1)
	go func() { // it may never return
		found <- r.probe(all)
		<-r.probing
	}()
	select {
	case why := <-found:
		return why
	case <-ctx.Done():
		return ""
	case <-late.C:
		return spoolHangs
	}
}

func (r *Runner) probe(all bool) string {
	if why := r.Ready(); why != "" {
		return why
	}
	path := filepath.Join(r.o.Spool, folder.Steps, folder.New+"probe") // Recover deletes what is left of it
	err := os.WriteFile(path, []byte("can this node start steps?\n"), 0o600)
	if rerr := os.Remove(path); err == nil {
		err = rerr
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return spoolFull
	case errors.Is(err, unix.EROFS):
		return spoolNoWrite
	case err != nil:
		return "SlurmdSpoolDir: " + plainError(err)
	}
	if !all {
		return ""
	}
	if err := r.makesProcesses(); err != nil {
		return "cannot start processes: " + plainError(err)
	}
	r.unprobe() // an earlier daemon was killed between the two lines below
	g, err := r.root.Create(probeGroup, nil)
	if err == nil {
		err = g.Remove()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// probeGroup is the cgroup by which a node is tried.
const probeGroup = "probe"

// unprobe removes what a daemon that was killed left of it. No process has ever been in it.
func (r *Runner) unprobe() { _ = r.root.Reclaim(&pb.Bundle{Cgroup: probeGroup}) }

// makesProcesses starts a shim that ends at once.
func (r *Runner) makesProcesses() error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.o.Command[0], append(append([]string(nil), r.o.Command[1:]...), "nothing")...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := inherit.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// plainError leaves out the name of the program or file, which says nothing of the fault.
func plainError(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return fmt.Sprint(err)
}
