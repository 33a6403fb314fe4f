package packages_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/internal/test/boottest"
)

var built = flag.String("packages", "", "folder with the packages to test (make packages); empty: build them")

// base is the folder of this run.
var base string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	var err error
	if base, err = os.MkdirTemp("/var/tmp", "sluice-packages-"); err == nil {
		err = os.Chmod(base, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(base)
	return m.Run()
}

// packages are those of this tree for this machine.
var packages = sync.OnceValues(func() (string, error) {
	if *built != "" {
		return filepath.Abs(*built)
	}
	out := filepath.Join(base, "packages")
	cmd := exec.Command("./build", out, runtime.GOARCH)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return out, nil
})

// files are the packages of one format.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	dir, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("there is no %s in %s: %v", pattern, dir, err)
	}
	return found
}

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("there is no %s here; install it", p)
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// debs are the packages of a release: those of this tree, or the same under another version, by the paths where hosts have them.
func debs(t *testing.T, version string) map[string]string {
	t.Helper()
	bind := map[string]string{}
	for _, file := range files(t, "*_"+runtime.GOARCH+".deb") {
		name, _, _ := strings.Cut(filepath.Base(file), "_")
		if version != "" {
			dir := filepath.Join(t.TempDir(), name)
			own := strings.TrimSpace(run(t, "dpkg-deb", "--field", file, "Version"))
			run(t, "dpkg-deb", "-R", file, dir)
			scripts, _ := filepath.Glob(filepath.Join(dir, "DEBIAN", "*"))
			for _, s := range scripts {
				text, err := os.ReadFile(s)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(s, "sums") {
					text = []byte(strings.ReplaceAll(string(text), own, version))
				}
				if err := os.WriteFile(s, text, 0); err != nil { // its mode stays
					t.Fatal(err)
				}
			}
			file = filepath.Join(t.TempDir(), name+".deb")
			run(t, "dpkg-deb", "-Znone", "--root-owner-group", "-b", dir, file)
		}
		bind["/debs"+version+"/"+name+".deb"] = file
	}
	return bind
}

// booted is a host without Sluice, which sees the packages of this release in /debs, of a later one in /debs99.
func booted(t *testing.T) *boottest.Host {
	t.Helper()
	need(t, "dpkg-deb")
	if _, err := boottest.Root(); err != nil {
		t.Skip("no hosts can be booted here: ", err)
	}
	bind := debs(t, "")
	for at, file := range debs(t, "99") {
		bind[at] = file
	}
	h := boottest.Boot(t, "one", nil, map[string]string{"/etc/hosts": "127.0.0.1 localhost one\n"}, bind)
	h.Do("", "useradd", "--create-home", "--uid", "1234", "ada")
	return h
}

// install installs all packages of a release as `apt install ./*.deb` does; what it says is given.
func install(h *boottest.Host, release string) string {
	return h.Do("", "sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --allow-downgrades "+
		"--reinstall /debs"+release+"/*.deb 2>&1")
}

// aLink is a line of systemd-analyze about a link among units.
var aLink = regexp.MustCompile(`(?m)^(Suspicious symlink|.* points to "null").*\n`)

// TestOneMachine: after one command a user's job runs; the packages are upgraded and downgraded under a running job, and removed.
func TestOneMachine(t *testing.T) {
	h := booted(t)
	install(h, "")
	for _, unit := range []string{"sluice-ctld", "sluice-noded"} {
		got := h.Run("", "systemctl", "is-active", unit).Out + h.Run("", "systemctl", "is-enabled", unit).Out
		if got != "active\nenabled\n" {
			t.Fatalf("%s is %q after the installation\n%s", unit, got, h.Journal(unit))
		}
	}
	h.Until("the node is idle", func() bool { return h.Run("ada", "sinfo", "-h", "-o", "%T").Out == "idle\n" })
	if got := h.Do("ada", "sh", "-c", "cd /home/ada && sbatch --wait -o out --wrap 'id -un; echo $SLURMD_NODENAME' >/dev/null && cat out"); got != "ada\none" {
		t.Fatalf("the first job says %q", got)
	}
	t.Run("installed", func(t *testing.T) { installed(t, h) })
	t.Run("upgrade", func(t *testing.T) { upgrade(t, h) })
	t.Run("newer database", func(t *testing.T) { newerDatabase(t, h) })
	t.Run("removal", func(t *testing.T) { removal(t, h) })
}

// installed: every program runs, pages and completions are found under the names of Slurm.
func installed(t *testing.T, h *boottest.Host) {
	for _, c := range strings.Fields(h.Do("", "sluice", "commands")) {
		if r := h.Run("ada", c, "--help"); r.Code != 0 || r.Out == "" {
			t.Errorf("%s --help: %v", c, r)
		}
		for _, file := range []string{"man/man1/" + c + ".1.gz", "bash-completion/completions/" + c,
			"fish/vendor_completions.d/" + c + ".fish"} {
			if r := h.Run("", "test", "-s", "/usr/share/"+file); r.Code != 0 {
				t.Errorf("there is no /usr/share/%s", file)
			}
		}
	}
	for _, p := range []string{"sluice-ctld", "sluice-noded", "slurmctld", "slurmd"} {
		if r := h.Run("", p, "--version"); r.Code != 0 || !strings.Contains(r.Out, "sluice ") || strings.Contains(r.Out, "cgo") {
			t.Errorf("%s --version: %v", p, r)
		}
	}
	if r := h.Run("", "systemctl", "is-active", "slurmctld", "slurmd"); r.Out != "active\nactive\n" {
		t.Errorf("the units by the names of Slurm: %v", r)
	}
	// The host's systemd judges, which may be another than the machine's.
	for _, unit := range []string{"sluice-ctld.service", "sluice-noded.service", "sluice-login.service"} {
		r := h.Run("", "systemd-analyze", "verify", "--man=no", unit)
		said := aLink.ReplaceAllString(r.Out+r.Err, "") // Ubuntu 22.04's lists those of all units
		if r.Code != 0 || strings.Contains(said, "sluice") {
			t.Errorf("systemd finds fault with %s: %v", unit, r)
		}
	}
	for _, unit := range []string{"sluice-ctld.service", "sluice-login.service"} {
		if r := h.Run("", "systemd-analyze", "security", "--no-pager", "--threshold=15", unit); r.Code != 0 &&
			!strings.Contains(r.Err, "unrecognized option") { // before systemd 250
			t.Errorf("%s is exposed more than 1.5: %v", unit, r)
		}
	}
	// The usual folder of Slurm's logs is there, and the controller's.
	h.Do("", "sh", "-euc", `cp -a /etc/slurm/slurm.conf /root/
		echo SlurmctldLogFile=/var/log/slurm/slurmctld.log >>/etc/slurm/slurm.conf; systemctl restart sluice-ctld
		test -s /var/log/slurm/slurmctld.log
		mv /root/slurm.conf /etc/slurm/; systemctl restart sluice-ctld; rm /var/log/slurm/slurmctld.log`)
	if r := h.Run("", "dpkg", "--audit"); r.Out != "" {
		t.Errorf("dpkg finds: %v", r)
	}
	if r := h.Run("", "dpkg", "--verify"); r.Out != "" {
		t.Errorf("files are not as they were packed: %v", r)
	}
}

// upgrade: the daemons are replaced, in the order that docs/administrators.md says, and a job does not notice; own configuration stays.
func upgrade(t *testing.T, h *boottest.Host) {
	h.Do("", "sh", "-c", "echo '# ours' | tee -a /etc/slurm/slurm.conf >>/etc/default/sluice-noded; rm /etc/default/sluice-login")
	id := h.Do("ada", "sh", "-c", `cd /home/ada && sbatch --parsable -o long --wrap 'echo $$; until [ -e end ]; do sleep 0.2; done; echo done'`)
	pid := ""
	h.Until("the job runs", func() bool { pid = h.Run("", "cat", "/home/ada/long").Out; return pid != "" })
	started := func(unit string) string { return h.Shown(unit, "ExecMainStartTimestampMonotonic") }
	same := func(when string) {
		t.Helper()
		h.Until("the node is back", func() bool { return h.Run("ada", "sinfo", "-h", "-o", "%T").Out == "mixed\n" })
		if got := h.Do("ada", "squeue", "-h", "-o", "%A %T", "-j", id); got != id+" RUNNING" {
			t.Errorf("%s the job is %q", when, got)
		}
		h.Do("", "sh", "-c", "kill -0 "+strings.TrimSpace(pid))
		r := h.Run("", "grep", "-c", "ours", "/etc/slurm/slurm.conf", "/etc/default/sluice-noded")
		if r.Code != 0 || strings.Contains(r.Out, ":0") {
			t.Errorf("%s changed files were not kept: %v", when, r)
		}
		if r := h.Run("", "test", "-e", "/etc/default/sluice-login"); r.Code == 0 {
			t.Errorf("%s a file that was removed is there again", when)
		}
	}
	ctld, noded := started("sluice-ctld"), started("sluice-noded")
	install(h, "99")
	same("after the upgrade")
	after := func(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
	if !after(started("sluice-ctld"), ctld) || !after(started("sluice-noded"), noded) {
		t.Error("a daemon was not restarted")
	}
	if !after(started("sluice-noded"), started("sluice-ctld")) {
		t.Error("the node daemon was restarted before the controller")
	}
	since := h.Do("", "journalctl", "--show-cursor", "--lines=0", "--quiet")
	install(h, "")
	same("after the downgrade")
	order := h.Do("", "journalctl", "--after-cursor="+strings.TrimPrefix(since, "-- cursor: "), "--unit=sluice-ctld", "--unit=sluice-noded",
		"--output=cat", "--grep=^Started .*Sluice")
	if first, _, _ := strings.Cut(order, "\n"); !strings.Contains(first, "node daemon") || !strings.Contains(order, "controller") {
		t.Errorf("at the downgrade the controller was restarted before the node daemon: %s", order)
	}
	h.Do("ada", "touch", "/home/ada/end")
	h.Until("the job has ended", func() bool {
		return h.Run("ada", "sacct", "-nXP", "-j", id, "-o", "state,exitcode").Out == "COMPLETED|0:0\n"
	})
	if got := h.Do("", "cat", "/home/ada/long"); !strings.HasSuffix(got, "done") {
		t.Errorf("the job wrote %q", got)
	}
}

// newerDatabase: the controller of an older package refuses the database of a newer one, leaves it as it is, and the packages are whole.
func newerDatabase(t *testing.T, h *boottest.Host) {
	h.Do("", "systemctl", "stop", "sluice-ctld")
	path := "/var/lib/sluice/ctld/sluice.db"
	h.Do("", "cp", "-a", "/var/lib/sluice/ctld", "/var/lib/sluice/before")
	later(t, h.Path("/var/lib/sluice/ctld"))
	h.Do("", "chown", "-R", "sluice:sluice", "/var/lib/sluice/ctld")
	sum := h.Do("", "sha256sum", path)
	said := install(h, "")
	if !strings.Contains(said, "sluice-ctld.service does not start") {
		t.Errorf("the installation says nothing of it: %s", said)
	}
	h.Do("", "sh", "-c", "systemctl stop sluice-ctld; systemctl reset-failed sluice-ctld || true")
	if got := h.Do("", "sha256sum", path); got != sum {
		t.Error("the newer database was changed")
	}
	if log := h.Journal("sluice-ctld"); !strings.Contains(log, "install the newer version") {
		t.Errorf("the controller says nothing of it: %s", log)
	}
	if r := h.Run("", "dpkg", "--audit"); r.Out != "" {
		t.Errorf("dpkg finds: %v", r)
	}
	h.Do("", "sh", "-c", "cd /var/lib/sluice && rm -r ctld && mv before ctld && systemctl start sluice-ctld")
}

// later replaces a state directory with that of a later release: its rows have another schema.
func later(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := journal.Open(dir, journal.Options{Schema: 99})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// removal: what is left is the state, and it is said where; installed again, the cluster has it.
func removal(t *testing.T, h *boottest.Host) {
	said := h.Do("", "sh", "-c", "apt-get purge -y 'sluice*' 2>&1")
	for _, words := range []string{"stay in /var/lib/sluice/ctld", "/etc/slurm/slurm.conf has been changed, and stays"} {
		if !strings.Contains(said, words) {
			t.Errorf("the removal does not say %q: %s", words, said)
		}
	}
	left := h.Do("", "sh", "-c", "find / -xdev \\( -path /proc -o -path /sys -o -path /debs -o -path /debs99 -o -path /var/lib/sluice "+
		"-o -path /home -o -path /var/log/journal \\) -prune -o \\( -iname '*sluice*' -o -iname '*slurm*' \\) -print")
	if left != "/etc/slurm\n/etc/slurm/slurm.conf" {
		t.Errorf("after the removal there is: %s", left)
	}
	install(h, "")
	h.Until("the node is idle", func() bool { return h.Run("ada", "sinfo", "-h", "-o", "%T").Out == "idle\n" })
	if got := h.Do("", "sacct", "-nXP", "-j", "1", "-o", "user,state"); got != "ada|COMPLETED" {
		t.Errorf("of the first job there is %q", got)
	}
}

// TestPurge: what the packages have made themselves goes with them.
func TestPurge(t *testing.T) {
	h := booted(t)
	install(h, "")
	h.Do("", "sh", "-c", "apt-get purge -y 'sluice*' 2>&1")
	if r := h.Run("", "ls", "-d", "/etc/slurm", "/etc/sluice", "/run/sluice", "/var/log/sluice", "/var/log/slurm"); r.Out != "" {
		t.Errorf("after the removal there is: %s", r.Out)
	}
}

// TestLintian: Debian's own checker of packages finds no errors.
func TestLintian(t *testing.T) {
	need(t, "lintian")
	args := append([]string{"--fail-on", "error", "--tag-display-limit", "0", "--allow-root"}, files(t, "*.deb")...)
	if out, err := exec.Command("lintian", args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
