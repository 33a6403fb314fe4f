package hostile

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// messageTimeout is for clusters whose commands wait for it to pass. It is far longer than an answer takes, also where much else runs.
const messageTimeout = "MessageTimeout=10"

// silence is what Slurm's commands say of a controller that does not answer (22.05, slurmctld stopped by SIGSTOP).
const silence = "Socket timed out on send/recv operation"

// TestStoppedController: a controller that was stopped takes connections and requests, and says nothing. Each command gives up after
// MessageTimeout, says so in Slurm's words, and fails; when the controller goes on, all is as before.
func TestStoppedController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, messageTimeout)
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGSTOP))
	commands := map[string]string{ // and what stands before it
		"squeue":                        "slurm_load_jobs error: ",
		"squeue -j 1":                   "slurm_load_jobs error: ",
		"squeue --json":                 "",
		"sinfo":                         "slurm_load_partitions: ",
		"sbatch --wrap=true":            "sbatch: error: Batch job submission failed: ",
		"scancel 1":                     "scancel: error: Kill job error on job id 1: ",
		"scancel -u alice":              "",
		"scontrol show job":             "",
		"scontrol show config":          "slurm_load_ctl_conf error: ",
		"scontrol show node":            "",
		"scontrol hold 1":               "",
		"scontrol reconfigure":          "slurm_reconfigure error: ",
		"scontrol update jobid=1 nice=": "",
		"scontrol ping":                 "scontrol: ",
		"sdiag":                         "slurm_get_statistics: ",
		"sprio":                         "",
		"sshare":                        "Couldn't get shares from controller: ",
		"sacct":                         "",
	}
	running := map[string]*process{}
	for line := range commands {
		words := strings.Fields(line)
		running[line] = c.run(0, words[0], words[1:]...)
	}
	for line, p := range running {
		if out, code := p.end(); code == 0 || !strings.Contains(out, commands[line]+silence) {
			t.Errorf("%s: exit %d, %q, want %q", line, code, out, commands[line]+silence)
		}
	}
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGCONT))
	c.bystander()
}

// TestSubmissionToAStoppedController: who submits while the controller is stopped for a while has one job.
func TestSubmissionToAStoppedController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, messageTimeout)
	proxy := listen(t, c)
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGSTOP))
	p := start(t, 0, append(c.env(), "SLUICE_SOCKET="+proxy.path), filepath.Join(bin, "sbatch"), "--parsable", "--hold", "--wrap=true")
	c.await("sbatch asks again", func() bool { conns, _ := proxy.seen(); return conns >= 2 })
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGCONT))
	out, code := p.end()
	if code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if list, _ := c.run(0, "squeue", "-h", "-o%i").end(); list != out {
		t.Errorf("submitted %q, there are %q", out, list)
	}
}

// TestWaitingForAJob: sbatch --wait goes on for as long as the controller is heard of, though the call is answered by nothing else; it says
// so when it is not, and goes on with that, too.
func TestWaitingForAJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, messageTimeout)
	proxy := listen(t, c)
	p := start(t, 0, append(c.env(), "SLUICE_SOCKET="+proxy.path), filepath.Join(bin, "sbatch"), "--wait", "--hold", "--wrap=true")
	id := strings.TrimPrefix(p.line(), "Submitted batch job ")
	// Each is a third of MessageTimeout after the one before.
	c.await("the controller is heard of", func() bool { _, alive := proxy.seen(); return alive >= 4 })
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGSTOP))
	const want = "sbatch: error: Currently unable to load job state information, retrying: " + silence
	if l := p.line(); l != want { // and not before
		t.Errorf("%q, want %q", l, want)
	}
	must(t, c.ctld.Cmd.Process.Signal(syscall.SIGCONT))
	if out, code := c.run(0, "scancel", id).end(); code != 0 {
		t.Fatal(out)
	}
	if out, code := p.end(); code != 1 {
		t.Errorf("exit %d: %s", code, out)
	}
}

// proxy is a socket in front of the controller's that looks at what goes through it.
type proxy struct {
	path string

	mu           sync.Mutex
	conns, alive int
}

func (p *proxy) seen() (conns, alive int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns, p.alive
}

func listen(t *testing.T, c *cluster) *proxy {
	t.Helper()
	p := &proxy{path: filepath.Join(c.dir, "proxy.sock")}
	l, err := net.Listen("unix", p.path)
	must(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", c.sock)
			if err != nil {
				_ = near.Close()
				return
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			p.mu.Lock()
			p.conns++
			p.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			wg.Go(func() { p.watch(near, far); _ = near.Close() })
		}
	})
	return p
}

// watch passes the answers on and counts the empty frames that mean that a call goes on.
func (p *proxy) watch(to io.Writer, from io.Reader) {
	for {
		head := make([]byte, 10)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		if head[8] == 3 && head[9] == 4 {
			p.mu.Lock()
			p.alive++
			p.mu.Unlock()
		}
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}
