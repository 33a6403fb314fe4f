package crashtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/version"
	"github.com/sluice-hpc/sluice/ctld/daemontest"
)

// What the programs of this tree say of themselves, and those of a later release that has dropped all protocols of this one.
var (
	thisBuild = version.Ours
	farBuild  = version.Build{Protocol: version.Protocol + 7, Oldest: version.Protocol + 7, Release: version.Sluice}
)

// farPrograms are the programs of farBuild: this tree with other numbers in conf/version.
var farPrograms = sync.OnceValues(func() (dir string, err error) {
	return otherPrograms("far", "conf/version/protocol.go", func(source []byte) ([]byte, error) {
		for name, n := range map[string]uint32{"Protocol": farBuild.Protocol, "Oldest": farBuild.Oldest} {
			is := regexp.MustCompile(`(?m)^\t` + name + ` += \d+$`)
			if len(is.FindAll(source, -1)) != 1 {
				return nil, fmt.Errorf("cannot find the constant %s", name)
			}
			source = is.ReplaceAll(source, fmt.Appendf(nil, "\t%s = %d", name, n))
		}
		return source, nil
	})
})

// otherPrograms builds the programs of this tree once more, with one file changed, into a folder of this name. From the build cache it
// takes as long as linking.
func otherPrograms(name, file string, change func(source []byte) ([]byte, error)) (dir string, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", err
	}
	if source, err = change(source); err != nil {
		return "", fmt.Errorf("cannot change %s: %w", file, err)
	}
	dir = filepath.Join(base, name)
	changed, overlay := dir+".go", dir+".json"
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, file): changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, source, 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", dir+"/", "./cmd/sluice", "./cmd/sluice-ctld", "./cmd/sluice-noded")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build other programs: %w\n%s", err, out)
	}
	return dir, nil
}

// builds is a cluster with programs of two releases that have no protocol in common.
type builds struct {
	*upgrade
	far   string         // the folder of the other programs
	marks map[string]int // how long the logs were when a controller was last replaced
}

// controller replaces the controller. This process is of its build as well: what it calls beside the commands is answered.
func (b *builds) controller(dir string) {
	b.t.Helper()
	if b.ctld != nil && !b.ctld.signal(syscall.SIGTERM) {
		b.t.Fatal("the controller does not end")
	}
	b.marks = map[string]int{}
	for _, d := range b.daemons() {
		b.marks[d.Name] = len(d.Text())
	}
	b.install("ctld", dir)
	version.Ours = thisBuild
	if dir == b.far {
		version.Ours = farBuild
	}
	b.startCtld()
}

// node replaces the daemon of a node, and does not wait for the new one.
func (b *builds) node(name, dir string) *daemon {
	b.t.Helper()
	if d := b.noded[name]; d != nil && !d.Ended() && !d.signal(syscall.SIGTERM) {
		b.t.Fatalf("the daemon of %s does not end", name)
	}
	b.install(name, dir)
	return b.startNoded(name)
}

// in waits until a node can be used.
func (b *builds) in(node string) {
	b.t.Helper()
	b.await(node+" can be used", func() bool {
		return slices.ContainsFunc(b.nodeRecords(), func(n *msg.NodeRecord) bool {
			return n.Name == node && n.StateFlags == 0 && n.State != msg.NodeState_NODE_DOWN && n.State != msg.NodeState_NODE_UNKNOWN &&
				n.Reason == "" && n.NodedStartNs >= b.noded[node].started.UnixNano()
		})
	})
}

// refused waits until a node is kept out, in words: in sinfo -R and in the logs of both daemons, since the controller was replaced.
func (b *builds) refused(node string) {
	b.t.Helper()
	dir, last, words := b.far, "", tooOld("sluice-noded of "+node, "sluice-ctld")+": upgrade sluice-noded of "+node
	if version.Ours == thisBuild {
		dir, words = bin, tooOld("sluice-ctld", "sluice-noded of "+node)+": upgrade sluice-ctld"
	}
	if !daemontest.Poll(patience, func() bool {
		last, _ = b.command(dir, "sinfo", "-h", "-R", "-N", "-n", node, "-o", "%E")
		return strings.TrimSpace(last) == "Version: "+words
	}) {
		b.t.Fatalf("sinfo -R says of %s %q, want %q", node, last, words)
	}
	for _, d := range []*daemon{b.ctld, b.noded[node]} {
		b.await(fmt.Sprintf("the log of %s says: %s", d.Name, words), func() bool {
			return strings.Contains(d.Text()[b.marks[d.Name]:], words)
		})
	}
}

// tooOld are the words between a part of this build and one of farBuild.
func tooOld(old, young string) string {
	return fmt.Sprintf("%s (release %s, protocol %d) is too old for %s (release %s), which understands protocols %d to %d",
		old, thisBuild.Release, thisBuild.Protocol, young, farBuild.Release, farBuild.Oldest, farBuild.Protocol)
}

// commandsRefused calls commands of the build that the controller is not of: each fails, in words, and has done nothing.
func (b *builds) commandsRefused(dir, words string, bystander *gated) {
	b.t.Helper()
	id, before := fmt.Sprint(bystander.id), len(b.cluster.jobs())
	for _, args := range [][]string{
		{"sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "exit 0"},
		{"squeue"},
		{"sinfo"},
		{"sacct"},
		{"scontrol", "show", "job", id},
		{"scontrol", "hold", id},
		{"scontrol", "ping"},
		{"scancel", id},
	} {
		out, err := b.command(dir, args...)
		if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(out, words) {
			b.t.Errorf("%v of another build: %v, %q; want it to fail with %q", args, err, out, words)
		}
	}
	if jobs := len(b.cluster.jobs()); jobs != before {
		b.t.Errorf("there were %d jobs, and are %d", before, jobs)
	}
}

// notUnder starts a node daemon under a running job whose shim it has no protocol in common with: it does not start, and says why.
func (b *builds) notUnder(g *gated, node, dir, words string) {
	b.t.Helper()
	const started = `msg="node daemon started"`
	job := b.started(g.witness).pid
	shim := parent(b.t, job)
	before := strings.Count(b.noded[node].Text(), started)
	d := b.node(node, dir)
	if !daemontest.Poll(patience, func() bool { return d.Ended() || strings.Count(d.Text(), started) > before }) || !d.Ended() {
		b.t.Fatalf("%s runs under a job of a shim that it does not understand:\n%s", d.Name, d.Tail(5))
	}
	if d.Cmd.ProcessState.ExitCode() <= 0 || !strings.Contains(d.Tail(3), words) {
		b.t.Errorf("the daemon of %s has ended with %v, want an error with %q:\n%s", node, d.Cmd.ProcessState, words, d.Tail(3))
	}
	if now := parent(b.t, job); now != shim || unix.Kill(shim, 0) != nil || zombie(shim) || zombie(job) {
		b.t.Errorf("the shim of job %d was %d, and is %d", g.id, shim, now)
	}
	if seen, err := readWitness(g.witness); len(seen) != 1 || err != nil {
		b.t.Errorf("job %d should be running: %v, %v", g.id, seen, err)
	}
}

// running: jobs are known to run.
func (b *builds) running(all ...*gated) {
	b.t.Helper()
	for _, g := range all {
		if j := b.cluster.jobs(g.id)[g.id]; j.GetState() != msg.JobState_JOB_RUNNING || j.GetAttempt() != 1 {
			b.t.Errorf("job %d is %v, attempt %d, %q; it runs", g.id, j.GetState(), j.GetAttempt(), j.GetReasonDetail())
		}
	}
}

// TestBuildsApart: parts of two releases that have no protocol in common refuse each other and say which is to be upgraded, in every
// combination. What runs on a node that is refused goes on, and its end is known once a daemon and a controller of one build are there.
func TestBuildsApart(t *testing.T) {
	far, err := farPrograms()
	must(t, err)
	b := &builds{upgrade: &upgrade{cluster: newCluster(t, 2)}, far: far}
	t.Cleanup(func() { version.Ours = thisBuild })
	ourCommand := tooOld("this command", "sluice-ctld") + ": upgrade this command"
	theirCommand := tooOld("sluice-ctld", "this command") + ": upgrade sluice-ctld"

	b.controller(bin)
	b.issue()
	b.node("n1", bin)
	b.node("n2", far)
	b.in("n1")
	b.refused("n2") // has never been in
	long, short := b.begin("n1"), b.begin("n1")
	b.commandsRefused(far, theirCommand, long)

	// n2 is refused at once for what is the matter now, not for what was before.
	b.commandsWork(bin)
	if !b.noded["n2"].signal(syscall.SIGTERM) {
		t.Fatal("the daemon of n2 does not end")
	}
	b.controller(far)
	b.node("n2", bin)
	b.refused("n2")
	b.refused("n1")
	b.commandsRefused(bin, ourCommand, long)
	b.commandsWork(far)
	b.node("n2", far)
	b.in("n2")
	b.unseen(short)
	b.running(long, short)
	farLong, farShort := b.begin("n2"), b.begin("n2")

	b.controller(bin)
	b.in("n1")
	b.refused("n2")
	b.ends(short, "ended while its node was refused")
	b.running(long, farLong, farShort)
	b.unseen(farShort)
	b.ends(b.begin("n1"), "begun after its node was refused")

	shim := func(g *gated) string { return fmt.Sprint("the shim of job ", g.id) }
	b.notUnder(long, "n1", far, tooOld(shim(long), "this sluice-noded")+": start the sluice-noded of before")
	b.notUnder(farLong, "n2", bin, tooOld("this sluice-noded", shim(farLong))+": start a newer one")
	b.unseen(long)
	b.node("n1", bin)
	b.in("n1")
	b.ends(long, "ended after a daemon that does not understand its shim")

	b.controller(far)
	b.node("n2", far)
	b.in("n2")
	b.refused("n1")
	b.ends(farShort, "ended while its node was refused")
	b.ends(farLong, "has run under daemons of both builds")
	farLast := b.begin("n2")

	b.controller(bin)
	b.refused("n2")
	b.unseen(farLast)
	b.node("n2", bin)
	b.in("n1")
	b.in("n2")
	b.ends(farLast, "its record is of a shim of another build")
	b.commandsWork(bin)
	for _, n := range b.nodes {
		b.ends(b.begin(n), "everything is of one build again")
	}
	b.settled()
	b.nodesUp()
}
