package crashtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// damages are what can happen to the database file while the controller does not run. changed: the file is surely not sound any more.
var damages = []struct {
	name string
	do   func(c *cluster, path string) (changed bool)
}{
	{"truncated", func(c *cluster, path string) bool {
		must(c.t, os.Truncate(path, c.used(path)/2))
		return true
	}},
	{"cut to a page", func(c *cluster, path string) bool {
		must(c.t, os.Truncate(path, 4096))
		return true
	}},
	{"emptied", func(c *cluster, path string) bool {
		must(c.t, os.Truncate(path, 0))
		return true
	}},
	{"deleted", func(c *cluster, path string) bool {
		must(c.t, os.Remove(path))
		return true
	}},
	{"zeros at the beginning", func(c *cluster, path string) bool {
		overwrite(c.t, path, 0, make([]byte, 16384))
		return true
	}},
	{"another file", func(c *cluster, path string) bool {
		must(c.t, os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 2000)), 0o600))
		return true
	}},
	{"many bits flipped", func(c *cluster, path string) bool {
		flip(c, path, 400)
		return true
	}},
	{"a bit flipped", func(c *cluster, path string) bool { flip(c, path, 1); return false }},
	{"another bit flipped", func(c *cluster, path string) bool { flip(c, path, 1); return false }},
	{"a third bit flipped", func(c *cluster, path string) bool { flip(c, path, 1); return false }},
	{"a bit of a script flipped", func(c *cluster, path string) bool {
		text, err := os.ReadFile(path)
		must(c.t, err)
		at := strings.LastIndex(string(text), "the nineteenth job")
		if at < 0 {
			c.t.Fatal("the scripts are not in the database as they are: this case tests nothing")
		}
		overwrite(c.t, path, int64(at), []byte{text[at] ^ 4})
		return false // it may be an old version of the page
	}},
}

// used is the part of a database file that holds something.
func (c *cluster) used(path string) int64 {
	text, err := os.ReadFile(path)
	must(c.t, err)
	n := len(text)
	for n > 0 && text[n-1] == 0 {
		n--
	}
	return int64(n)
}

// flip changes n bits anywhere in the used part of a file.
func flip(c *cluster, path string, n int) {
	text, err := os.ReadFile(path)
	must(c.t, err)
	used := c.used(path)
	for range n {
		at := c.rng.Int64N(used)
		overwrite(c.t, path, at, []byte{text[at] ^ 1<<c.rng.IntN(8)})
	}
}

func overwrite(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(data, at)
	must(t, err)
	must(t, f.Close())
}

// TestDamagedDatabase: whatever happens to the file, the controller says so or is not affected; one command repairs it; nothing
// acknowledged is missing, no id is given out twice, and running jobs do not notice.
func TestDamagedDatabase(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	w := c.witness("runs")
	running := c.submit(gatedJob, nil, w, "9")
	c.started(w)
	for i := range 20 {
		c.submit(plainJob+"# the "+ordinals[i]+" job\n", func(s *msg.JobSpec) { s.Hold = true; s.Name = ordinals[i] }, c.witness("held"))
	}
	quick := c.submit(plainJob, nil, c.witness("quick"), "3")
	c.wait(quick)
	deleted := c.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, c.witness("held"))
	c.cancel(deleted)
	c.wait(deleted)
	for i, d := range damages {
		before := c.jobs()
		if i%2 == 0 {
			c.ctld.kill()
		} else {
			c.ctld.signal(15)
		}
		changed := d.do(c, filepath.Join(c.state, "sluice.db"))
		refused := c.refuses(d.name, changed)
		if refused {
			c.restore(d.name)
		}
		c.compare(d.name, before)
		c.awaitNodes()
		fmt.Printf("%s: %s, refused %v\n", t.Name(), d.name, refused)
	}
	open(c, w)
	if j := c.wait(running); j.ExitStatus != 9<<8 || j.Attempt != 1 {
		t.Errorf("the job that ran all the time: %v, status %#x, attempt %d", j.State, j.ExitStatus, j.Attempt)
	}
	seen, err := readWitness(w)
	must(t, err)
	if err := ranOnce(seen); err != nil {
		t.Errorf("the job that ran all the time: %v", err)
	}
	c.settled()
	c.nodesUp()
}

var ordinals = []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
	"twelfth",
	"thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth"}

// refuses starts the controller on a state that may be damaged. When it starts it must be unharmed (compare finds out).
func (c *cluster) refuses(what string, must bool) bool {
	c.t.Helper()
	d := c.launchCtld()
	c.await("the controller starts or refuses", func() bool { return d.Ended() || c.ping() })
	if !d.Ended() {
		if must {
			c.t.Errorf("%s: the controller starts", what)
		}
		return false
	}
	said := d.Tail(1)
	if code := d.Cmd.ProcessState.ExitCode(); code != 1 {
		c.t.Errorf("%s: the controller ends with %v", what, d.Cmd.ProcessState)
	}
	for _, part := range []string{filepath.Join(c.state, "sluice.db"), "sluice-ctld restore --state " + c.state} {
		if !strings.Contains(said, part) {
			c.t.Errorf("%s: the refusal does not say %q: %s", what, part, said)
		}
	}
	return true
}

// restore types what the refusal says, and starts the controller.
func (c *cluster) restore(what string) {
	c.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "sluice-ctld"), "restore", "--state", c.state).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "restored from") {
		c.t.Fatalf("%s: restore: %v: %s", what, err, out)
	}
	c.startCtld()
}

// compare: the jobs are the earlier ones, with their scripts, and a new one gets an id that has never been used.
func (c *cluster) compare(what string, before map[uint32]*msg.JobRecord) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	after := c.jobs()
	var highest uint32
	for _, id := range slices.Sorted(maps.Keys(before)) {
		was, is := before[id], after[id]
		highest = max(highest, id)
		if is == nil || is.State != was.State || is.Attempt != was.Attempt || is.ExitStatus != was.ExitStatus ||
			is.Spec.Name != was.Spec.Name {
			c.t.Errorf("%s: job %d was %v %q and is %v", what, id, was.State, was.Spec.Name, is)
			continue
		}
		if was.State != msg.JobState_JOB_PENDING {
			continue
		}
		script, err := cl.Script(context.Background(), id)
		if err != nil || !strings.HasPrefix(string(script), plainJob) || was.Spec.Name != "crash" &&
			!strings.HasSuffix(string(script), "# the "+was.Spec.Name+" job\n") {
			c.t.Errorf("%s: job %d has the script %q, %v", what, id, script, err)
		}
	}
	if len(after) != len(before) {
		c.t.Errorf("%s: there were %d jobs, there are %d", what, len(before), len(after))
	}
	if id := c.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, c.witness("held")); id <= highest {
		c.t.Errorf("%s: a new job gets id %d, there was one with %d", what, id, highest)
	}
}
