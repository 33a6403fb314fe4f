package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/noded/container/containertest"
)

// bin is the folder with the real programs and a link for each command.
var bin string

// root is the module's folder.
const root = "../.."

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	if code, ran := daemontest.Apart(""); ran {
		return code
	}
	forget()
	dir, err := os.MkdirTemp("", "sluice-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the second user runs commands from it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// What these tests do is wait, for processes and time limits.
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6")
	}
	bin = dir
	if err := buildPrograms(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// forget takes out of the environment what Slurm's commands and ours read there: the tests may run inside of a job, or for somebody
// who has formats of his own.
func forget() {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		command, _, _ := strings.Cut(name, "_")
		if strings.Contains(" SLURM SLURMD SBATCH SCANCEL SQUEUE SINFO SACCT SPRIO SRUN SALLOC SCRONTAB SSTAT SCONTROL ",
			" "+command+" ") || name == "SLUICE_SOCKET" {
			_ = os.Unsetenv(name)
		}
	}
}

// buildPrograms builds as `make build` does, so that the build cache serves both.
func buildPrograms(dir string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", dir,
		"./cmd/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	if err := buildPMIx(dir); err != nil {
		return err
	}
	if out, err := exec.Command(filepath.Join(root, ".ci/link"), dir).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot link the commands: %w\n%s", err, out)
	}
	return nil
}

// buildPMIx builds sluice-pmix with libpmix, where that is.
func buildPMIx(dir string) error {
	if err := os.Remove(filepath.Join(dir, "sluice-pmix")); err != nil {
		return err
	}
	if exec.Command("pkg-config", "--exists", "pmix").Run() != nil {
		return nil
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", "urfave_cli_no_docs,pmix", "-o", dir,
		"./cmd/sluice-pmix")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build sluice-pmix: %w\n%s", err, out)
	}
	return nil
}

// TestScripts runs testdata/script/*.txtar: each has a cluster of its own, made by the commands of scriptCommands.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		Cmds:                scriptCommands,
		Condition:           condition,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		ContinueOnError:     os.Getenv("SLUICE_TEST_CONTINUE") != "",
		UpdateScripts:       os.Getenv("SLUICE_UPDATE_SCRIPTS") != "",
	})
}

// secondUser is the user that scripts run commands as, besides root: $SLUICE_TEST_USER, else nobody.
func secondUser() (*user.User, error) {
	name := os.Getenv("SLUICE_TEST_USER")
	if name == "" {
		name = "nobody"
	}
	return user.Lookup(name)
}

// setup gives a script its environment, and checks afterwards that its cluster leaves nothing behind.
func setup(env *testscript.Env) error {
	for _, dir := range []string{filepath.Dir(env.WorkDir), env.WorkDir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	host, _, _ = strings.Cut(host, ".")
	me, err := user.Current()
	if err != nil {
		return err
	}
	env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	env.Setenv("C", filepath.Join(env.WorkDir, "c"))
	env.Setenv("HOST", host)
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("USER", me.Username)
	env.Setenv("TZ", "UTC")
	programs, err := filepath.Abs(filepath.Join(root, "deploy/ansible/roles/node/files"))
	if err != nil {
		return err
	}
	env.Setenv("PROGRAMS", programs)
	if err := setupPorts(env); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := setupSecondUser(env); err != nil {
			return err
		}
	}
	env.Defer(func() { teardown(env) })
	return nil
}

// portBlocks counts the blocks of ports that scripts have been given, from anywhere.
var portBlocks = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(1 << 16))
	return &n
}()

// setupPorts finds free ports in a row for scripts with a configuration of their own: $PORT0 … $PORT9.
func setupPorts(env *testscript.Env) error {
	const count, first, blocks = 10, 11000, 800 // other tests look elsewhere
	for range 100 {
		base := first + count*int(portBlocks.Add(1)%blocks) // none twice: a port is free as long as its daemon is dead
		free := true
		for p := base; p < base+count && free; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				l.Close()
			}
		}
		if !free {
			continue
		}
		for i := range count {
			env.Setenv(fmt.Sprintf("PORT%d", i), fmt.Sprint(base+i))
		}
		return nil
	}
	return errors.New("cannot find free ports")
}

// setupSecondUser offers `exec as COMMAND …`, and a folder that the user may write to.
func setupSecondUser(env *testscript.Env) error {
	u, err := secondUser()
	if err != nil {
		return fmt.Errorf("cannot find the second user: %w (make test makes it)", err)
	}
	env.Setenv("OTHER", u.Username)
	env.Setenv("OTHER_UID", u.Uid)
	env.Setenv("OTHER_DIR", filepath.Join(env.WorkDir, "other"))
	dir := filepath.Join(env.WorkDir, "other")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("chown", u.Uid+":"+u.Gid, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot give a folder to %s: %w: %s", u.Username, err, out)
	}
	tools := filepath.Join(env.WorkDir, ".tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nexport HOME=%s USER=%s\nexec setpriv --reuid %s --regid %s --init-groups -- \"$@\"\n", dir,
		u.Username, u.Uid, u.Gid)
	if err := os.WriteFile(filepath.Join(tools, "as"), []byte(script), 0o755); err != nil {
		return err
	}
	env.Setenv("PATH", tools+":"+bin+":"+os.Getenv("PATH"))
	return nil
}

func condition(cond string) (bool, error) {
	switch cond {
	case "root":
		return os.Getuid() == 0, nil
	case "pmix":
		_, err := os.Stat(filepath.Join(bin, "sluice-pmix"))
		return err == nil, nil
	case "cgroups":
		return os.Getuid() == 0 && cgroupsWritable(), nil
	case "freezer": // of cgroup v1: what it has frozen survives SIGKILL
		_, err := os.Stat("/sys/fs/cgroup/freezer/cgroup.procs")
		return os.Getuid() == 0 && err == nil, nil
	case "namespaces":
		probe := exec.Command("unshare", "--mount", "--ipc", "--propagation", "slave", "mount", "-t", "tmpfs", "none", "/dev/shm")
		return probe.Run() == nil, nil
	case "containers":
		return os.Getuid() == 0 && containertest.Missing() == nil, nil
	case "short":
		return testing.Short(), nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

// cgroupsWritable tries to make a cgroup where memory can be limited.
func cgroupsWritable() bool {
	for _, dir := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue
		}
		probe := filepath.Join(dir, fmt.Sprintf("sluice-probe-%d", os.Getpid()))
		if os.Mkdir(probe, 0o755) == nil {
			return os.Remove(probe) == nil
		}
	}
	return false
}

// reporter is what a *testing.T can do and a testscript.T does not promise.
type reporter interface {
	Errorf(format string, args ...any)
}

// teardown stops the script's cluster and reports what it leaves behind.
func teardown(env *testscript.Env) {
	t := env.T().(reporter)
	dir := filepath.Join(env.WorkDir, "c")
	name := clusterName(dir)
	out, err := exec.Command(filepath.Join(bin, "sluice"), "down", "--now", "--dir", dir).CombinedOutput()
	if err != nil {
		t.Errorf("sluice down failed: %v\n%s", err, out)
	}
	for _, left := range leftovers(env.WorkDir, name) {
		t.Errorf("left behind: %s", left)
	}
	if os.Getenv("SLUICE_TEST_LOGS") != "" {
		logs, _ := filepath.Glob(filepath.Join(dir, "log", "*"))
		for _, path := range logs {
			b, _ := os.ReadFile(path)
			env.T().Log(path + ":\n" + string(b))
		}
	}
}

// clusterName reads the name from the configuration that the cluster uses.
func clusterName(dir string) string {
	for _, path := range []string{filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "..", "slurm.conf")} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "ClusterName="); ok {
				return name
			}
		}
	}
	return ""
}

// leftovers looks for processes that mention the folder, and for cgroups and mounts of the cluster.
func leftovers(dir, cluster string) (found []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if strings.Contains(string(line), dir+"/") {
			found = append(found, fmt.Sprintf("process %s: %q", filepath.Base(p), line))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) > 2 && strings.HasPrefix(f[1], dir+"/") {
			found = append(found, "mount "+f[1])
		}
		if cluster != "" && len(f) > 2 && strings.HasPrefix(f[2], "cgroup") {
			if path := filepath.Join(f[1], "sluice", cluster); exists(path) {
				found = append(found, "cgroup "+path)
			}
		}
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
