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

// leastSpace and leastInodes are the free space that a launch requires: a script and its environment take up to 5 MiB, records a
// few KiB.
const (
	leastSpace  = 8 << 20
	leastInodes = 32
)

// probeTimeout is how long the spool may take to write a small file. It is long because a disk may be busy.
const probeTimeout = time.Minute

// Reasons why a node cannot start steps, as shown for the node; the first is Slurm's.
const (
	spoolFull    = "SlurmdSpoolDir is full"
	spoolNoWrite = "SlurmdSpoolDir is read-only"
	spoolNoExec  = "SlurmdSpoolDir is mounted noexec"
	spoolGone    = "SlurmdSpoolDir is missing"
	spoolHangs   = "SlurmdSpoolDir does not answer"
)

// Ready returns why no step can start now, by checks that are cheap; "": it can be tried.
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

// Fault checks whether steps can start: whether a file can be written in the spool and, with all (after a failed launch), whether
// a process and a cgroup can be created. It returns when ctx ends or the spool hangs.
func (r *Runner) Fault(ctx context.Context, all bool) string {
	late := time.NewTimer(probeTimeout)
	defer late.Stop()
	select {
	case r.probing <- struct{}{}:
	case <-ctx.Done():
		return ""
	case <-late.C: // an earlier check hangs
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
	path := filepath.Join(r.o.Spool, folder.Steps, folder.New+"probe") // Recover deletes a leftover
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
	r.unprobe() // an earlier daemon may have been killed between Create and Remove
	g, err := r.root.Create(probeGroup, nil)
	if err == nil {
		err = g.Remove()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// probeGroup is the cgroup that the check creates.
const probeGroup = "probe"

// unprobe removes the cgroup that a killed daemon left. No process has ever been in it.
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

// plainError omits the name of the program or file, which says nothing about the fault.
func plainError(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return fmt.Sprint(err)
}
