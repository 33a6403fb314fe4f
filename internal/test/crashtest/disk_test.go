package crashtest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// disk is an ext4 filesystem of its own, in a file.
type disk struct {
	t            *testing.T
	image, mount string
}

// onDisk puts the state of a cluster that has not been started on a filesystem of its own.
func onDisk(t *testing.T, c *cluster, mib int64) *disk {
	t.Helper()
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("no mkfs.ext4 (package e2fsprogs)")
	}
	d := &disk{t, filepath.Join(c.dir, "image"), c.state}
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, errors.Join(os.Truncate(d.image, mib<<20), os.Mkdir(d.mount, 0o700)))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if err := daemontest.MountImage(d.image, d.mount); err != nil {
		t.Skipf("this machine cannot mount a loop device: %v", err)
	}
	t.Cleanup(d.unmount) // before the cluster is cleaned up, so:
	t.Cleanup(func() {
		if c.ctld != nil && !c.ctld.Ended() {
			c.ctld.signal(unix.SIGTERM)
		}
	})
	return d
}

// unmount waits until nobody holds the mount any more: a process that was being made when a daemon was killed does for a moment, until
// it has become another program.
func (d *disk) unmount() {
	deadline := time.Now().Add(patience)
	for {
		out, err := exec.Command("umount", d.mount).CombinedOutput()
		switch text := string(out); {
		case err == nil || strings.Contains(text, "not mounted"):
			return
		case !strings.Contains(text, "busy") || time.Now().After(deadline):
			d.t.Errorf("umount: %v: %s", err, out)
			_ = exec.Command("umount", "-l", d.mount).Run()
			return
		}
	}
}

// cutPower stops the filesystem at once: what is not on the disk will never be (EXT4_IOC_SHUTDOWN without a flush of its log).
func (d *disk) cutPower() {
	d.t.Helper()
	const shutdown, noFlush = 0x8004587d, 2
	f, err := os.Open(d.mount)
	must(d.t, err)
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noFlush); err != nil {
		d.t.Skipf("this kernel cannot shut down an ext4 filesystem: %v", err)
	}
}

// powerOn mounts what is left.
func (d *disk) powerOn() {
	d.t.Helper()
	d.unmount()
	if err := daemontest.MountImage(d.image, d.mount); err != nil {
		d.t.Fatalf("after the power cut: %v", err)
	}
}

// fill takes every byte that is left; empty gives them back.
func (d *disk) fill() (empty func()) {
	d.t.Helper()
	path := filepath.Join(d.mount, "hog")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(d.t, err)
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if n, err := f.Write(make([]byte, size)); err != nil || n < size {
			size /= 2
		}
	}
	must(d.t, f.Sync())
	return func() { must(d.t, os.Remove(path)) }
}

// TestDiskFull: submissions are refused and say why; what runs ends and is recorded, also over a restart; with space all goes on.
func TestDiskFull(t *testing.T) {
	c := newCluster(t, 1)
	d := onDisk(t, c, 64)
	c.start()
	var ids []uint32
	var paths []string
	for i := range 6 {
		w := c.witness(fmt.Sprint("running", i))
		ids, paths = append(ids, c.submit(gatedJob, nil, w, fmt.Sprint(i))), append(paths, w)
		c.started(w)
	}
	waiting := c.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, c.witness("waiting"), "2")
	empty := d.fill()
	refused := c.submitUntilRefused()
	c.await("the redo log to make room", func() bool { return c.ctld.Said("the redo log is deleted") })
	d.fill() // of that, too
	refused = errors.Join(refused, c.submitUntilRefused())
	if p := client.ProblemOf(refused); p == nil || p.Code != uint32(msg.CodeNoSpace) || !strings.Contains(p.Error(), "full") ||
		p.Hint == "" {
		t.Errorf("a full disk is refused with %q", refused)
	}
	path := filepath.Join(c.dir, "job.sh")
	must(t, os.WriteFile(path, []byte(plainJob+noise(3<<20)), 0o755))
	cmd := exec.Command(filepath.Join(bin, "sbatch"), "--parsable", path, "w", "0")
	cmd.Env = c.clientEnv()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "StateSaveLocation") {
		t.Errorf("sbatch on a full disk: %v, %q", err, out)
	}
	end := func(list []int) {
		for _, i := range list {
			open(c, paths[i])
			if j := c.wait(ids[i]); j.ExitStatus != uint32(i)<<8 || !j.State.Terminal() {
				t.Errorf("job %d is %v with status %#x on a full disk, it exited with %d", j.Id, j.State, j.ExitStatus, i)
			}
		}
	}
	end([]int{0, 1, 2})
	c.ctld.kill()
	c.startCtld()
	for i := range 3 {
		if j := c.jobs(ids[i])[ids[i]]; j == nil || j.ExitStatus != uint32(i)<<8 {
			t.Errorf("after a restart on a full disk job %d is %v", ids[i], j)
		}
	}
	end([]int{3, 4})
	empty()
	end([]int{5})
	l := newLedger(c)
	give, done := l.crowd(persistent, viaSbatch)
	give(10)
	done()
	l.releaseAndCheck(waiting, 2)
}

// submitUntilRefused sends large scripts until the controller has had enough.
func (c *cluster) submitUntilRefused() error {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	for i := range 200 {
		if _, err := cl.SubmitJob(context.Background(), c.ballast(640<<10, i)); err != nil {
			return err
		}
	}
	c.t.Fatal("128 MiB of scripts fit on a full disk of 64 MiB")
	return nil
}

// ballast is a held job with a script that does not become smaller.
func (c *cluster) ballast(size, salt int) *msg.SubmitRequest {
	req := request(c, "")
	req.Script, req.Spec.Hold, req.Spec.Name = []byte(fmt.Sprintf("#!/bin/sh\n# %d\n", salt)+noise(size)), true, "ballast"
	return req
}

// noise is a comment that does not compress.
func noise(size int) string {
	raw := make([]byte, size/4*3)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return "#" + base64.RawURLEncoding.EncodeToString(raw) + "\n"
}

// TestDiskFilledByScripts: what users have submitted fills the disk, with the redo log that repeats it. The controller finds room by
// itself, with a fresh backup in place of the log; nothing that was acknowledged is lost.
func TestDiskFilledByScripts(t *testing.T) {
	const disk, script = 96 << 20, 640 << 10
	c := newCluster(t, 1)
	onDisk(t, c, disk>>20)
	c.start()
	var refused error
	cl := c.dial()
	defer cl.Close()
	held := 0
	for ; refused == nil; held++ {
		if held > 400 {
			t.Fatal("no end of scripts on a disk of 96 MiB")
		}
		_, refused = cl.SubmitJob(context.Background(), c.ballast(script, held))
	}
	held--
	if p := client.ProblemOf(refused); p == nil || p.Code != uint32(msg.CodeNoSpace) {
		t.Errorf("refused with %v", refused)
	}
	if 2*held*script < disk/8*7 { // else it has found room before: there is none for more in the database and one backup
		c.await("room for a script", func() bool {
			_, err := cl.SubmitJob(context.Background(), c.ballast(script, held))
			return err == nil
		})
		held++
	}
	c.scontrol("create", "reservation=r", "starttime=now+1hour", "duration=10", "nodes=n1", "users=root")
	before := c.jobs()
	if len(before) != held {
		t.Errorf("%d jobs were acknowledged, there are %d", held, len(before))
	}
	c.ctld.kill()
	c.startCtld()
	after := c.jobs()
	for id := range before {
		if after[id] == nil {
			t.Errorf("job %d is not there any more", id)
		}
	}
	cl = c.dial()
	defer cl.Close()
	_, err := cl.CancelJobs(context.Background(), &msg.CancelJobsRequest{ByFilter: true,
		Filter: &msg.JobsRequest{Names: []string{"ballast"}}})
	must(t, err)
}

// releaseAndCheck ends a test with a held job: it runs now, and once.
func (l *ledger) releaseAndCheck(held uint32, code int) {
	c := l.c
	c.t.Helper()
	l.entries = append(l.entries, &entry{name: "waiting", code: code, job: held})
	cl := c.dial()
	defer cl.Close()
	_, err := cl.CancelJobs(context.Background(), &msg.CancelJobsRequest{ByFilter: true,
		Filter: &msg.JobsRequest{Names: []string{"ballast"}}})
	must(c.t, err)
	_, err = cl.ControlJobs(context.Background(), &msg.ControlJobsRequest{Verb: "release", Ids: []string{fmt.Sprint(held)}})
	must(c.t, err)
	for _, j := range c.jobs() {
		if j.Spec.Name == "crash" && strings.Contains(strings.Join(j.Spec.Args, " "), "/running") {
			l.entries = append(l.entries, &entry{name: filepath.Base(j.Spec.Args[0]), code: int(j.ExitStatus >> 8), job: j.Id})
		}
	}
	l.check()
}

// TestPowerCut: the power of the controller's disk fails while eight submit; whatever was acknowledged is there afterwards.
func TestPowerCut(t *testing.T) {
	c := newCluster(t, 2)
	d := onDisk(t, c, 64)
	c.start()
	l := newLedger(c)
	crowd := []submitter{persistent, persistent, persistent, persistent, careless, careless, viaSbatch, viaSbatch}
	give, done := l.crowd(crowd...)
	began := time.Now()
	const cuts = 6
	for i := range cuts {
		give(200)
		c.ctld.Wait(time.Duration(20+c.rng.IntN(150)) * time.Millisecond)
		d.cutPower()
		if !c.ctld.Wait(patience) {
			t.Fatal("the controller goes on without a disk")
		}
		if code := c.ctld.Cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("without a disk the controller ends with %v\n%s", c.ctld.Cmd.ProcessState, c.ctld.Tail(10))
		}
		d.powerOn()
		c.startCtld()
		c.present(l)
		progress(t, "power cuts", i, cuts, began)
	}
	done()
	l.check()
}

// present: what has been acknowledged is known.
func (c *cluster) present(l *ledger) {
	c.t.Helper()
	l.mu.Lock()
	var acked []uint32
	for _, e := range l.entries {
		if e.job != 0 {
			acked = append(acked, e.job)
		}
	}
	l.mu.Unlock()
	all := c.jobs()
	for _, id := range acked {
		if all[id] == nil {
			c.t.Errorf("job %d was acknowledged, and is not there after the power cut", id)
		}
	}
}
