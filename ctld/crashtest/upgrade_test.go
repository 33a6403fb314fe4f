package crashtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// upgrade is a cluster whose daemons become others.
type upgrade struct {
	*cluster
	jobs int
}

// gated is a job that ends when it is told to.
type gated struct {
	id      uint32
	code    uint32
	witness string
}

// begin starts a job on a node and waits until it runs.
func (u *upgrade) begin(node string) *gated {
	u.t.Helper()
	u.jobs++
	g := &gated{code: uint32(u.jobs % 5 * 3), witness: u.witness(fmt.Sprint("job", u.jobs))}
	g.id = u.submit(gatedJob, func(s *msg.JobSpec) { s.ReqNodes = node }, g.witness, fmt.Sprint(g.code))
	u.started(g.witness)
	return g
}

// unseen lets a job end while nobody may be there to tell: its record is on disk.
func (u *upgrade) unseen(g *gated) {
	u.t.Helper()
	open(u.cluster, g.witness)
	u.await(fmt.Sprintf("the exit record of job %d", g.id), func() bool {
		found, _ := filepath.Glob(filepath.Join(u.spool("*"), "steps", fmt.Sprintf("%d.1.*", g.id), "exit.pb"))
		return len(found) == 1
	})
}

// ends lets a job end, unless it has, and looks at what the controller knows of it.
func (u *upgrade) ends(g *gated, when string) {
	u.t.Helper()
	open(u.cluster, g.witness)
	want := msg.JobState_JOB_COMPLETED
	if g.code != 0 {
		want = msg.JobState_JOB_FAILED
	}
	j := u.wait(g.id)
	if j.State != want || j.ExitStatus != g.code<<8 || j.Attempt != 1 || j.Restarts != 0 {
		u.t.Errorf("%s: job %d is %v with status %#x, attempt %d, %q; it exited with %d", when, g.id, j.State, j.ExitStatus, j.Attempt,
			j.ReasonDetail, g.code)
	}
	seen, err := readWitness(g.witness)
	must(u.t, err)
	if err := ranOnce(seen); err != nil {
		u.t.Errorf("%s: job %d: %v", when, g.id, err)
	}
}

// replace makes the daemon of a host another one, under jobs that run: one ends while the file is new and the daemon old, one while there
// is no daemon, one is cancelled afterwards, others end by themselves.
func (u *upgrade) replace(host, with, what string) {
	u.t.Helper()
	node, d := host, u.noded[host]
	if host == "ctld" {
		node, d = "n1", u.ctld
	}
	early, unseen, late, stopped := u.begin(node), u.begin(node), u.begin(node), u.begin(node)
	u.install(host, with)
	meanwhile := []*gated{u.begin(node), u.begin(node), u.begin(node)} // more than there are idle shims of the old program
	u.ends(early, what+": under the old daemon")
	if !d.signal(syscall.SIGTERM) {
		u.t.Fatalf("%s: the old daemon does not end", what)
	}
	u.unseen(unseen)
	if host == "ctld" {
		u.startCtld()
	} else {
		u.startNoded(host)
	}
	u.awaitNodes()
	u.ends(unseen, what+": while there was no daemon")
	u.cancel(stopped.id)
	if j := u.wait(stopped.id); j.State != msg.JobState_JOB_CANCELLED {
		u.t.Errorf("%s: a job that ran already and was cancelled is %v", what, j.State)
	}
	u.ends(late, what+": under the new daemon")
	for _, g := range meanwhile {
		u.ends(g, what+": begun when the file was new and the daemon old")
	}
	u.ends(u.begin(node), what+": begun under the new daemon")
}

// TestUpgrade replaces the daemons of the previous release by those of this one, and back, under jobs that run: the controller first, then
// the nodes, as docs/administrators.md says. No end of a job is lost, and no job runs twice. Jobs that were started by the first daemons
// end under the last.
func TestUpgrade(t *testing.T) {
	old, commit := previous(t)
	t.Log("the previous release is ", commit)
	u := &upgrade{cluster: newCluster(t, 2)}
	u.hooks()
	for _, host := range []string{"ctld", "n1", "n2"} {
		u.install(host, old)
	}
	u.start()
	first := []*gated{u.begin("n1"), u.begin("n2")}
	u.commandsWork(old)
	u.commandsWork(bin) // of this release, with a controller of the previous one
	u.replace("ctld", bin, "the controller is new")
	u.commandsWork(old)
	u.commandsWork(bin)
	u.replace("n1", bin, "n1 is new")
	u.ends(u.begin("n2"), "a node of the previous release has a new controller")
	u.replace("n2", bin, "n2 is new")
	second := []*gated{u.begin("n1"), u.begin("n2")}
	u.replace("n1", old, "n1 is old again")
	u.controllerBack(old)
	u.replace("n2", old, "n2 is old again")
	for _, g := range append(first, second...) {
		u.ends(g, "has run all the time")
	}
	u.settled()
	u.nodesUp()
	u.hooked()
}

// hooks has prolog and epilog write a line each.
func (u *upgrade) hooks() {
	u.t.Helper()
	conf := strings.Replace(u.text(), " CPUs=8 ", " CPUs=16 ", 1) // of what jobs run at a time
	for _, name := range []string{"prolog", "epilog"} {
		program := filepath.Join(u.dir, name)
		must(u.t, os.WriteFile(program, []byte("#!/bin/sh\necho $SLURM_JOB_ID >>"+program+".log\n"), 0o755))
		conf += strings.ToUpper(name[:1]) + name[1:] + "=" + program + "\n"
	}
	must(u.t, os.WriteFile(u.conf, []byte(conf), 0o644))
}

// hooked compares what they have written: each job has had one of both, whichever daemon it was.
func (u *upgrade) hooked() {
	u.t.Helper()
	prologs, epilogs := strings.Fields(readFile(u.t, filepath.Join(u.dir, "prolog.log"))),
		strings.Fields(readFile(u.t, filepath.Join(u.dir, "epilog.log")))
	slices.Sort(prologs)
	slices.Sort(epilogs)
	if !slices.Equal(prologs, epilogs) || len(slices.Compact(prologs)) != len(epilogs) {
		u.t.Errorf("jobs that had a prolog: %v, an epilog: %v", prologs, epilogs)
	}
}

// controllerBack starts the controller of the previous release on what that of this one has written. It goes on, or refuses it in words
// and leaves it as it is.
func (u *upgrade) controllerBack(old string) {
	u.t.Helper()
	unseen := u.begin("n2")
	u.install("ctld", old)
	if !u.ctld.signal(syscall.SIGTERM) {
		u.t.Fatal("the controller does not end")
	}
	u.unseen(unseen)
	before := u.database()
	d := u.launchCtld()
	u.await("the old controller answers, or has ended", func() bool { return d.Ended() || u.ping() })
	if d.Ended() {
		if !strings.Contains(d.Text(), "written by a newer version") {
			u.t.Errorf("a controller of the previous release does not say why it does not start:\n%s", d.Tail(5))
		}
		if u.database() != before {
			u.t.Error("a controller of the previous release has changed the database that it refuses")
		}
		u.t.Log("a controller of the previous release refuses the database:\n", d.Tail(1))
		u.install("ctld", bin)
		u.startCtld()
	}
	u.awaitNodes()
	u.ends(unseen, "while there was no controller")
}

// database is what the database has, byte by byte.
func (u *upgrade) database() [sha256.Size]byte {
	u.t.Helper()
	data, err := os.ReadFile(filepath.Join(u.state, "sluice.db"))
	must(u.t, err)
	return sha256.Sum256(data)
}
