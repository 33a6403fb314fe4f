package sandbox

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/conf"
)

func TestGeneratedConfigurationIsFaultless(t *testing.T) {
	for _, n := range []int{1, 2, MaxNodes} {
		dir, _, err := openDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.generate(n, false); err != nil {
			t.Fatal(err)
		}
		c, err := conf.Load(dir.ownConf(), conf.Options{})
		if err != nil {
			t.Fatalf("%d nodes: %v", n, err)
		}
		apart := min(n-1, 1) // the advice to confine jobs to cores, which nodes of one machine cannot
		if len(c.Nodes) != n || len(c.Warnings) != 0 || len(c.Ignored) != 0 || len(c.Advice) != apart {
			t.Errorf("%d nodes: %d nodes, warnings %v, ignored %v, advice %v", n, len(c.Nodes), c.Warnings, c.Ignored, c.Advice)
		}
		if c.MaxArraySize != 100001 {
			t.Errorf("MaxArraySize=%d", c.MaxArraySize)
		}
		if c.Cgroup.ConstrainCores != (n == 1) {
			t.Errorf("%d nodes: ConstrainCores is %v, but nodes that share cores must not be tied to some", n, c.Cgroup.ConstrainCores)
		}
		before, _ := os.ReadFile(dir.ownConf())
		if err := dir.generate(n, false); err != nil {
			t.Fatal(err)
		}
		if after, _ := os.ReadFile(dir.ownConf()); string(after) != string(before) {
			t.Error("a configuration that somebody may have edited was written again")
		}
	}
}

// A process that was killed keeps its port for as long as one of its threads is in the kernel, also when its first thread has ended.
func TestAnEndingProcessIsWaitedFor(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, which makes a process whose first thread has ended: apt-get install python3")
	}
	cmd := exec.Command(python, "-c", "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n"+
		"ctypes.CDLL(None).pthread_exit(0)")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	st, _ := readStat(cmd.Process.Pid)
	id := identity{PID: cmd.Process.Pid, Start: st.start, Boot: bootID()}
	for id.alive() {
		time.Sleep(pollEvery)
	}
	if !id.ending() {
		t.Error("a process with a living thread is not ending")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	settle(map[string]identity{"ctld": id}, time.Hour)
	if id.ending() {
		t.Error("still ending")
	}
	_ = cmd.Wait()
	if self, _ := identify(os.Getpid()); self.ending() {
		t.Error("this process is not ending")
	}
}

func TestARecycledPidIsNotSignalled(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	id, ok := identify(cmd.Process.Pid)
	if !ok || !id.alive() {
		t.Fatalf("a process that runs is not alive: %+v", id)
	}
	for name, other := range map[string]identity{
		"another start": {id.PID, id.Start + 1, id.Boot},
		"another boot":  {id.PID, id.Start, "0"},
		"no process":    {},
	} {
		if other.alive() {
			t.Errorf("%s: alive", name)
		}
		if err := other.signal(unix.SIGKILL); err != nil && name != "no process" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !id.alive() {
		t.Fatal("a process that was not meant has been killed")
	}
	if err := stop([]identity{id}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if id.alive() {
		t.Error("alive after stop")
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	cmd := exec.Command("bash", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	id, _ := identify(cmd.Process.Pid)
	if err := stop([]identity{id}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if id.alive() {
		t.Error("alive after stop")
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v, not of SIGKILL", err)
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		open: "others can write to it",
		file: "it is not a directory",
		filepath.Join(t.TempDir(), strings.Repeat("deep/", 30)): "give a shorter --dir",
	} {
		if _, _, err := openDir(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("openDir(%s) says %v, not %q", path, err, want)
		}
	}
	if os.Getuid() == 0 {
		other := t.TempDir()
		if err := os.Chown(other, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openDir(other); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") {
			t.Errorf("another user's folder: %v", err)
		}
	}
}

func TestEnvironmentOfAnyFolder(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "it's a $(folder) with \"quotes\"")
	dir, _, err := openDir(odd)
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{dir: dir, confPath: dir.ownConf(), bin: dir.join("bin")}
	if err := p.writeEnv(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c",
		`. "$1"; . "$1"; printf '%s\n' "${PATH%%:*}" "$SLURM_CONF" "$SLUICE_SOCKET"; echo "$PATH" | grep -o bin: | wc -l`, "sh",
		dir.envFile())
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	want := strings.Join([]string{p.bin, p.confPath, dir.socket(), "2", ""}, "\n")
	if err != nil || string(out) != want {
		t.Errorf("env.sh gives %q, %v; want %q", out, err, want)
	}
}

// A folder that slurm.conf can only name in quotes, made under a narrow umask: the configuration names it, and others may enter.
func TestGeneratedForAnyFolder(t *testing.T) {
	parent := t.TempDir()
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	dir, _, err := openDir(filepath.Join(parent, `a b # c\`))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(string(dir)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	if err := dir.generate(1, false); err != nil {
		t.Fatal(err)
	}
	c, err := conf.Load(dir.ownConf(), conf.Options{})
	if err != nil || c.StateSaveLocation != dir.state() {
		t.Errorf("the state is to be in %q, not in %q: %v", c.StateSaveLocation, dir.state(), err)
	}
	for _, name := range []string{`a"b`, "a\nb"} {
		dir, _, err := openDir(filepath.Join(parent, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.generate(1, false); err == nil || !strings.Contains(err.Error(), "which cannot contain quotes") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPortHolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	p := &plan{confPath: "x.conf", conf: &conf.Config{SlurmctldPort: port}}
	err = p.checkPort()
	if err == nil || !strings.Contains(err.Error(), "sandbox.test") || !strings.Contains(err.Error(), "x.conf") {
		t.Errorf("a port that this test holds: %v", err)
	}
	l.Close()
	if err := p.checkPort(); err != nil {
		t.Errorf("a free port: %v", err)
	}
}

func TestDownWithoutACluster(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		s, err := Down(context.Background(), DownOptions{Dir: dir, Wipe: true})
		if err != nil || s.Cluster != "" || s.Wiped {
			t.Errorf("%s: %+v, %v", dir, s, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("%s now has %v", dir, entries)
		}
	}
}

func TestOneCommandAtATime(t *testing.T) {
	dir, _, err := openDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Up(context.Background(), UpOptions{Dir: string(dir)}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("Up beside another command: %v", err)
	}
	lock.Close()
	if again, err := dir.lock(); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

// TestLockOutlivesItsCommand: what writes certificates for a command that was killed keeps the next one from beginning.
func TestLockOutlivesItsCommand(t *testing.T) {
	dir, _, err := openDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.lock()
	if err != nil {
		t.Fatal(err)
	}
	ctld, pidFile := filepath.Join(t.TempDir(), ctldName), filepath.Join(t.TempDir(), "pid")
	script := "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $! >" + pidFile + "\nexit 1\n"
	if err := os.WriteFile(ctld, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	u := &upper{dir: dir, lock: lock, plan: &plan{conf: &conf.Config{ClusterName: "c"}, ctld: ctld}}
	if err := u.claim(&conf.Node{Name: "n1"}); err == nil {
		t.Fatal("a failure was not noticed")
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if _, err := dir.lock(); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("locked beside a process that still writes: %v", err)
	}
	kill([]int{pid})
	if lock, err = dir.lock(); err != nil {
		t.Error(err)
	}
	lock.Close()
}

func TestClusterNamesTellFoldersApart(t *testing.T) {
	a, b := Dir("/tmp/a").clusterName(), Dir("/tmp/b").clusterName()
	if a == b || len(a) > 40 {
		t.Errorf("%s and %s", a, b)
	}
	if got := Dir(DefaultDir()).clusterName(); got != "sluice" {
		t.Errorf("the usual folder's cluster is %s", got)
	}
}

// TestPretendedConfigurationIsFaultless: its nodes need not be this machine, and have what the process that speaks for them says.
func TestPretendedConfigurationIsFaultless(t *testing.T) {
	dir, _, err := openDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.generate(3000, true); err != nil {
		t.Fatal(err)
	}
	c, err := conf.Load(dir.ownConf(), conf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxArraySize != 100001 {
		t.Errorf("MaxArraySize=%d", c.MaxArraySize)
	}
	if len(c.Nodes) != 3000 || len(c.Warnings) != 0 || len(c.Ignored) != 0 || len(c.Advice) != 0 {
		t.Errorf("%d nodes, warnings %v, ignored %v, advice %v", len(c.Nodes), c.Warnings, c.Ignored, c.Advice)
	}
	p := &plan{dir: dir, conf: c, pretend: true}
	if err := p.checkHosts(); err != nil {
		t.Error(err)
	}
	f := found{argv: append([]string{"/usr/sbin/sluice-noded"}, p.pretendDaemon().argv[1:]...)}
	if !f.pretends() || !dir.isOurs(f.argv) {
		t.Errorf("%q is not known as the process that speaks for the nodes", f.argv)
	}
}

func TestReadPretend(t *testing.T) {
	for _, c := range []struct {
		o    UpOptions
		want int
	}{{UpOptions{}, 0}, {UpOptions{Pretend: "7"}, 7}, {UpOptions{Pretend: "all", Conf: "f"}, -1}} {
		if err := c.o.readPretend(); err != nil || c.o.pretended != c.want {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	for _, o := range []UpOptions{{Pretend: "all"}, {Pretend: "0"}, {Pretend: "65537"}, {Pretend: "x"}, {Pretend: "3", Conf: "f"},
		{Pretend: "3", Nodes: 3}, {Pretend: "3", GPUs: "a100:1"}} {
		if o.readPretend() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestMetricsPortsAreLeft: a cluster takes the default ports for metrics only when its configuration has a line for them.
func TestMetricsPortsAreLeft(t *testing.T) {
	for _, c := range []struct {
		line        string
		ctld, nodes string // what each is told; a word for each node
	}{
		{"", "none", "none none"},
		{"MetricsParameters=listen=127.0.0.1:1", "none", "none none"},
		{"MetricsType=metrics/openmetrics", "default", "default none"},
		{"MetricsType=none", "default", "none none"},
	} {
		d, _, err := openDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.generate(2, false); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(d.ownConf())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.ownConf(), append(text, c.line+"\n"...), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg, err := conf.Load(d.ownConf(), conf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &plan{dir: d, conf: cfg, confPath: d.ownConf()}
		told := func(dm daemon) string {
			if i := slices.Index(dm.argv, "--metrics"); i > 0 {
				return dm.argv[i+1]
			}
			return "default"
		}
		var nodes []string
		for _, n := range p.nodes() {
			nodes = append(nodes, told(p.nodeDaemon(n)))
		}
		if got := told(p.ctldDaemon()); got != c.ctld || strings.Join(nodes, " ") != c.nodes {
			t.Errorf("%q: controller %s, nodes %v", c.line, got, nodes)
		}
	}
}
