package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/output"
)

// submission is an sbatch that may be waiting.
type submission struct {
	cmd *exec.Cmd
	out output.Buffer
	end chan error
}

func (u *user) startSbatch(script string) *submission {
	u.c.t.Helper()
	s := &submission{cmd: u.command(filepath.Join(bin, "sbatch"), "--hold", u.file("job.sh", script, 0o755)), end: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	must(u.c.t, s.cmd.Start())
	go func() { s.end <- s.cmd.Wait() }()
	return s
}

// untilWaiting submits scripts of 4 MB until a submission waits, which is returned, with the number of those that did not.
func (u *user) untilWaiting() (n int, waits *submission) {
	c := u.c
	c.t.Helper()
	for ; n < 30; n++ {
		s, ended := u.startSbatch("#!/bin/sh\n"+noise(4_000_000)), false
		c.await("an answer to a submission", func() bool {
			select {
			case err := <-s.end:
				if ended = true; err != nil {
					c.t.Errorf("sbatch: %v: %s", err, s.out.String())
				}
			default:
			}
			return ended || strings.Contains(s.out.String(), "sleeping and retrying")
		})
		if !ended {
			return n, s
		}
	}
	c.t.Fatal("120 MB of scripts fit on a disk of 120 MB")
	return 0, nil
}

// TestSmallDisk: the state is on a disk of 120 MB. A user gets a part of it, and the next one part of the rest; then they wait, and are
// told why. Root goes on until it is full. Once all of that is cancelled, whoever waits goes on by himself, the database shrinks, and there
// are a backup and a redo log again. What was acknowledged is there after kill -9.
func TestSmallDisk(t *testing.T) {
	c := newCluster(t, 1)
	onDisk(t, c, 120)
	c.startCtld()
	greedy, other := newUser(c, "greedy"), newUser(c, "other")
	first, waits := greedy.untilWaiting()
	defer func() { _ = waits.cmd.Process.Signal(unix.SIGKILL) }()
	if text := waits.out.String(); !strings.Contains(text, "the disk of StateSaveLocation is nearly full") {
		t.Errorf("a user who has filled the disk is told %q", text)
	}
	if first < 3 {
		t.Errorf("a user gets %d scripts of 4 MB on a disk of 120 MB", first)
	}
	if out, err := other.command(filepath.Join(bin, "sbatch"), "--hold", "--wrap=true").CombinedOutput(); err != nil {
		t.Errorf("another user's small job: %v: %s", err, out)
	}
	db := filepath.Join(c.state, "sluice.db")
	cl := c.dial()
	defer cl.Close()
	var err error
	roots := 0
	for ; err == nil && roots < 100; roots++ {
		_, err = cl.SubmitJob(context.Background(), c.ballast(640<<10, roots))
	}
	if p := client.ProblemOf(err); p == nil || p.Code != uint32(msg.CodeNoSpace) || roots < 20 {
		t.Fatalf("after %d scripts root is refused with %v", roots, err)
	}
	full := size(t, db)
	c.scancel("-u", fmt.Sprint(greedy.uid))
	c.scancel("--name", "ballast")
	c.await("who waits to go on", func() bool { return strings.Contains(waits.out.String(), "Submitted batch job") })
	must(t, <-waits.end)
	c.await("the database to shrink", func() bool { return size(t, db) < full/2 })
	c.await("a backup of what is left", func() bool {
		list := c.backups()
		if len(list) == 0 {
			return false
		}
		n := size(t, list[len(list)-1])
		return n > 0 && n < full/4
	})
	c.await("the redo log", func() bool {
		before := c.redoBytes()
		return other.command(filepath.Join(bin, "sbatch"), "--hold", "--wrap=true").Run() == nil && c.redoBytes() > before
	})
	before := c.jobs()
	c.ctld.kill()
	c.startCtld()
	after := c.jobs()
	if len(before) < 3 || len(after) != len(before) {
		t.Errorf("there were %d jobs, after kill -9 there are %d", len(before), len(after))
	}
}

func (c *cluster) scancel(args ...string) {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "scancel"), args...)
	cmd.Env = c.clientEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Errorf("scancel %v: %v: %s", args, err, out)
	}
}

// backups are the paths of the backups, oldest first.
func (c *cluster) backups() []string {
	list, err := filepath.Glob(filepath.Join(c.state, "backup", "e*.db"))
	must(c.t, err)
	return list
}

// redoBytes is the length of the redo log.
func (c *cluster) redoBytes() (n int64) {
	list, err := filepath.Glob(filepath.Join(c.state, "backup", "e*.log"))
	must(c.t, err)
	for _, path := range list {
		n += size(c.t, path)
	}
	return n
}

// size is that of a file; 0 when it has just gone.
func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	must(t, err)
	return info.Size()
}
