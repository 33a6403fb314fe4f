package step_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// otherBuild is the shim's program as another build of it: other bytes in another file.
func otherBuild(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	path := filepath.Join(t.TempDir(), "older")
	// Another process writes it: a descriptor of ours, in a child that is just being made, would make it busy.
	must(t, exec.Command("sh", "-c", `cat "$1" >"$2" && echo another build >>"$2" && chmod 755 "$2"`, "sh", exe, path).Run())
	return []string{path, "stepd"}
}

// TestUpgrade: the node daemon is replaced by another build while steps run. What ran goes on under its old shim, its end and exit
// status are reported and forgotten as ever, also when it came while no daemon was there; and the old shims get no new steps.
func TestUpgrade(t *testing.T) {
	n := newNode(t)
	n.shims = otherBuild(t)
	n.restart() // all shims from here on are the older build's
	n.fifo("go")
	goesOn, endsMeanwhile := n.bundle(), n.bundle()
	k1 := n.launch(goesOn, "read line < go; echo \"$line\"; exit 4")
	k2 := n.launch(endsMeanwhile, "exit 5")
	n.running(k1)
	old := n.shimOf(k1)
	must(t, os.Remove(n.shims[0])) // as a package manager leaves it
	n.shims = nil
	n.restart()
	if x := n.ended(k2); x.Verdict != "exited" || x.WaitStatus>>8 != 5 {
		t.Errorf("the one that had ended: %v", x)
	}
	if rep := n.running(k1); !proto.Equal(rep.Key, k1) {
		t.Errorf("the one that runs: %v", rep)
	}
	n.order(&pb.StepOrder{Key: k1, Want: pb.StepWant_WANT_RUN, LimitS: 3600}) // it takes orders
	n.write("go", "hello")
	x := n.ended(k1)
	if x.Verdict != "exited" || x.WaitStatus>>8 != 4 || n.output(goesOn) != "hello\n" {
		t.Errorf("ended as %v, output %q", x, n.output(goesOn))
	}
	disk, err := folder.ReadExit(n.r.Dir(k1))
	if err != nil || !proto.Equal(disk, x) {
		t.Errorf("on disk: %v, %v; reported: %v", disk, err, x)
	}
	awaitDeath(t, old)
	b := n.bundle()
	if x := n.run(b, "exit 6"); x.WaitStatus>>8 != 6 {
		t.Errorf("a step after the upgrade: %v", x)
	}
}

// TestShimEnvironment: a shim is told how to write its log by its environment alone, since one of an older build ends when it is given an
// option that it does not know; and jobs do not see it.
func TestShimEnvironment(t *testing.T) {
	const said = "SLUICE_LOG_TIME=short"
	n := newNode(t)
	n.shims, n.env = otherBuild(t), []string{said} // none that was started before is of this build
	n.restart()
	n.fifo("go")
	b := n.bundle()
	k := n.launch(b, "read line < go; tr '\\0' '\\n' </proc/$$/environ")
	n.running(k)
	of := func(what string) []string {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", n.shimOf(k), what))
		must(t, err)
		return strings.Split(string(raw), "\x00")
	}
	if env := of("environ"); !slices.Contains(env, said) {
		t.Errorf("the shim's environment is %q", env)
	}
	if args := strings.Join(of("cmdline"), " "); strings.Contains(args, "log") {
		t.Errorf("the shim has the options %s", args)
	}
	n.write("go", "")
	x, env := n.ended(k), n.output(b)
	if x.WaitStatus != 0 || !strings.Contains(env, "SLURM_JOB_ID=") || strings.Contains(env, "SLUICE_LOG") {
		t.Errorf("%v; the job's environment:\n%s", x, env)
	}
}

// fifo makes one in the job's folder; write opens it, which waits for the job to read, and writes a line.
func (n *node) fifo(name string) {
	n.t.Helper()
	must(n.t, unix.Mkfifo(filepath.Join(n.work, name), 0o666))
	must(n.t, os.Chmod(filepath.Join(n.work, name), 0o666))
}

func (n *node) write(name, line string) {
	n.t.Helper()
	w, err := os.OpenFile(filepath.Join(n.work, name), os.O_WRONLY, 0)
	must(n.t, err)
	_, err = w.WriteString(line + "\n")
	must(n.t, err)
	must(n.t, w.Close())
}
