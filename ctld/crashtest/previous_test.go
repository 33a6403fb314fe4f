package crashtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// previousVar names a commit, or a tag, whose programs are the previous release; what .ci/breaking compares with when it is not set.
const previousVar = "SLUICE_PREVIOUS"

// previous builds the programs of the previous release into a folder; the test is skipped where that cannot be done. From the
// build cache it takes as long as linking.
func previous(t *testing.T) (dir, commit string) {
	t.Helper()
	if commit = os.Getenv(previousVar); commit == "" {
		out, err := exec.Command("../../.ci/breaking", "--base").Output()
		must(t, err)
		commit = strings.TrimSpace(string(out))
	}
	source, dir := filepath.Join(t.TempDir(), "source"), filepath.Join(base, t.Name()+"-previous")
	must(t, os.Mkdir(source, 0o755))
	archive := exec.Command("sh", "-c", `git -c safe.directory='*' -C ../.. archive "$1" >"$2.tar" && tar -x -f "$2.tar" -C "$2"`, "sh",
		commit, source)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Skipf("there are no programs of another release to upgrade from: this clone has no %s (git fetch --unshallow --tags, or name "+
			"another commit with %s=COMMIT): %v: %s", commit, previousVar, err, out)
	}
	must(t, os.Mkdir(dir, 0o755))
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/sluice", "./cmd/sluice-ctld", "./cmd/sluice-noded")
	build.Dir, build.Env = source, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-trimpath")
	out, err := build.CombinedOutput()
	if err != nil && strings.Contains(string(out), "GOPROXY") {
		t.Skipf("the programs of %s cannot be built: a module that they need is not in the module cache, and tests download nothing; "+
			"go mod download in a checkout of that commit: %s", commit, out)
	}
	if err != nil {
		t.Fatalf("cannot build the programs of %s: %v\n%s", commit, err, out)
	}
	for _, name := range commands {
		must(t, os.Symlink("sluice", filepath.Join(dir, name)))
	}
	return dir, commit
}

// install replaces the programs of one host, as a package manager does: what runs keeps the file that it was started from.
func (c *cluster) install(host, from string) {
	c.t.Helper()
	to := filepath.Join(c.dir, "bin", host)
	must(c.t, os.MkdirAll(to, 0o755))
	for _, name := range []string{"sluice-ctld", "sluice-noded"} {
		// Another process writes it: a descriptor of ours, in a child that is just being made, would make it busy.
		out, err := exec.Command("sh", "-c", `cp "$1" "$2.new" && mv "$2.new" "$2"`, "sh", filepath.Join(from, name),
			filepath.Join(to, name)).CombinedOutput()
		if err != nil {
			c.t.Fatalf("cannot install %s: %v: %s", name, err, out)
		}
	}
	c.programs[host] = to
}

// commandsWork runs the commands of one build.
func (c *cluster) commandsWork(dir string) {
	c.t.Helper()
	run := func(args ...string) string {
		c.t.Helper()
		out, err := c.command(dir, args...)
		if err != nil {
			c.t.Errorf("%v of %s: %v: %s", args, dir, err, out)
		}
		return strings.TrimSpace(out)
	}
	id := run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "exit 0")
	for _, args := range [][]string{{"squeue", "-h", "-o", "%A %t", "-j", id}, {"scontrol", "show", "job", id}, {"squeue", "--json"}} {
		if out := run(args...); !strings.Contains(out, id) {
			c.t.Errorf("%v of %s says nothing of job %s: %s", args, dir, id, out)
		}
	}
	for _, args := range [][]string{{"sinfo", "-h", "-N", "-o", "%N %T"}, {"scontrol", "show", "node"}} {
		if out := run(args...); !strings.Contains(out, "n1") {
			c.t.Errorf("%v of %s does not mention n1: %s", args, dir, out)
		}
	}
	run("scontrol", "update", "JobId="+id, "Comment=looked at")
	run("scontrol", "ping")
	run("scontrol", "show", "config")
	run("scancel", id)
}

// command runs a command of one build.
func (c *cluster) command(dir string, args ...string) (out string, err error) {
	cmd := exec.Command(filepath.Join(dir, "sluice"))
	cmd.Args, cmd.Env, cmd.Dir = args, c.clientEnv(), "/"
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// commands are those that the suite uses.
var commands = []string{"sbatch", "scontrol", "squeue", "sinfo", "scancel"}
