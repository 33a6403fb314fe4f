package packages_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/boottest"
)

// rpmArch are RPM's names of architectures.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// TestRPM: the packages for Fedora and RHEL have the same files, and can be installed into an empty root.
func TestRPM(t *testing.T) {
	need(t, "rpm", "dpkg-deb")
	root := t.TempDir()
	rpms := files(t, "*."+rpmArch[runtime.GOARCH]+".rpm")
	if len(rpms) != len(files(t, "*_"+runtime.GOARCH+".deb")) {
		t.Fatalf("there are %d rpms and another number of debs", len(rpms))
	}
	run(t, "rpm", append([]string{"--root", root, "-i", "--nodeps", "--noscripts", "--ignorearch"}, rpms...)...)
	for _, p := range []string{"usr/bin/sluice", "usr/bin/sbatch", "usr/sbin/sluice-ctld", "usr/sbin/sluice-noded"} {
		if out := run(t, filepath.Join(root, p), "--version"); !strings.Contains(out, "slurm ") {
			t.Errorf("%s --version: %s", p, out)
		}
	}
	for _, rpm := range rpms {
		info := run(t, "rpm", "--dbpath", t.TempDir(), "-qip", rpm)
		if strings.Contains(info, "(none)") && !strings.Contains(info, "Signature   : (none)") {
			t.Errorf("%s: %s", filepath.Base(rpm), info)
		}
	}
}

// query is what an rpm says of itself.
func query(t *testing.T, file, format string) string {
	t.Helper()
	return run(t, "rpm", "--dbpath", t.TempDir(), "-qp", "--qf", format, file) // in its own folder, rpm would make a database
}

// nfpm packs a package as deploy/packages/build does; replace are pairs as of strings.NewReplacer.
func nfpm(t *testing.T, config string, replace ...string) (file string) {
	t.Helper()
	tool, err := filepath.Abs("../../.ci/tools/bin/nfpm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tool); err != nil {
		run(t, "make", "-s", "-C", "../..", tool)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(config)), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, tool, "package", "-f", path, "-p", "rpm", "-t", dir)
	found, err := filepath.Glob(filepath.Join(dir, "*.rpm"))
	if err != nil || len(found) != 1 {
		t.Fatal("nfpm has made ", found, err)
	}
	return found[0]
}

// system is an rpm by which the host, a Debian one, has what ours need of Fedora and RHEL.
const system = `name: system
arch: @ARCH@
version: 1.0.0
maintainer: Sluice <packages@sluice.invalid>
description: what the host has
provides: [systemd, glibc = 2.34]
`

// rpmAs packs an rpm once more, under another version.
func rpmAs(t *testing.T, file, version string) string {
	t.Helper()
	name, own := query(t, file, "%{NAME}"), query(t, file, "%{VERSION}")
	tree, scripts := t.TempDir(), t.TempDir()
	run(t, "sh", "-c", `rpm2archive - <"$1" | tar -xz -C "$2"`, "sh", file, tree)
	short := strings.TrimPrefix(name, "sluice-")
	if name == "sluice" {
		short = "all"
	}
	for tag, suffix := range map[string]string{"POSTIN": "post", "PREUN": "preun", "POSTUN": "postun"} {
		text := strings.ReplaceAll(query(t, file, "%{"+tag+"}"), own, version)
		if err := os.WriteFile(filepath.Join(scripts, short+"."+suffix), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(short + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return nfpm(t, string(config), "@ARCH@", runtime.GOARCH, "@VERSION@", version, "@TREE@", tree, "@SCRIPTS@", scripts,
		"@LIBC@", "glibc >= 2.34")
}

// rpmHost is a booted host whose packages are rpms. It has no rpm of its own: that of the machine works in it.
type rpmHost struct {
	*boottest.Host
	t    testing.TB
	line []string // what runs rpm there, by the machine's files
}

// machine is where an rpmHost sees /usr of the machine.
const machine = "/machine"

// machineRPM is the line that runs the machine's rpm on an rpmHost: with the machine's libraries, which no script of a package sees.
func machineRPM(t *testing.T) []string {
	t.Helper()
	at := func(path string) string {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || !strings.HasPrefix(real, "/usr/") {
			t.Skipf("rpm cannot be used on a booted host: it needs %s, which is not in /usr here: %v", path, err)
		}
		return machine + real
	}
	program, err := exec.LookPath("rpm")
	if err != nil {
		t.Fatal(err)
	}
	loader, dirs := "", map[string]bool{}
	for line := range strings.Lines(run(t, "ldd", program)) {
		switch f := strings.Fields(line); {
		case len(f) > 2 && f[1] == "=>":
			dirs[at(filepath.Dir(f[2]))] = true
		case strings.HasPrefix(f[0], "/"):
			loader = at(f[0])
		}
	}
	if loader == "" || len(dirs) == 0 {
		t.Fatalf("ldd says nothing of %s", program)
	}
	return []string{"env", "RPM_CONFIGDIR=" + machine + "/usr/lib/rpm", "HOME=/root", loader, "--inhibit-cache", "--library-path",
		strings.Join(slices.Sorted(maps.Keys(dirs)), ":"), at(program)}
}

// rpm runs rpm and gives what it says.
func (h rpmHost) rpm(args ...string) string {
	h.t.Helper()
	r := h.Run("", slices.Concat(h.line, args)...)
	if r.Code != 0 || strings.Contains(r.Err, "scriptlet failed") {
		h.t.Fatalf("rpm %s: %v", strings.Join(args, " "), r)
	}
	return r.Out + r.Err
}

// enabled is what systemctl says of the units, each in its word.
func (h rpmHost) enabled() string {
	h.t.Helper()
	return strings.Join(strings.Fields(h.Run("", "systemctl", "is-enabled", "sluice-ctld", "sluice-noded", "sluice-login").Out), " ")
}

// idle waits until the node can be used.
func (h rpmHost) idle() {
	h.t.Helper()
	h.Until("the node is idle", func() bool { return h.Run("ada", "sinfo", "-h", "-o", "%T").Out == "idle\n" })
}

// fedora is what Fedora and RHEL say of units that nobody has named.
const fedora = "/usr/lib/systemd/system-preset/00-as-fedora.preset"

// TestRPMScripts: the rpms are installed by rpm on a booted host, with their dependencies and scripts, upgraded and downgraded under a
// running job, and erased. The host is Debian's, with the presets of Fedora.
func TestRPMScripts(t *testing.T) {
	need(t, "rpm", "rpm2archive", "ldd")
	if _, err := boottest.Root(); err != nil {
		t.Skip("no hosts can be booted here: ", err)
	}
	rpms := files(t, "*."+rpmArch[runtime.GOARCH]+".rpm")
	var later []string
	for _, file := range rpms {
		later = append(later, rpmAs(t, file, "99"))
	}
	own := nfpm(t, system, "@ARCH@", runtime.GOARCH)
	bind := map[string]string{machine + "/usr": "/usr", "/system.rpm": own}
	for dir, files := range map[string][]string{"/rpms/": rpms, "/rpms99/": later} {
		for i, file := range files {
			at := dir + filepath.Base(file)
			bind[at], files[i] = file, at
		}
	}
	line := machineRPM(t)
	h := rpmHost{boottest.Boot(t, "one", nil, map[string]string{"/etc/hosts": "127.0.0.1 localhost one\n", fedora: "disable *\n"}, bind),
		t, line}
	h.Do("", "useradd", "--create-home", "--uid", "1234", "ada")
	h.rpm("-i", "/system.rpm")
	said := h.rpm(append([]string{"-i"}, rpms...)...)
	if !strings.Contains(said, "/etc/slurm/slurm.conf is made") {
		t.Errorf("the installation says %q", said)
	}
	if got := h.enabled(); got != "disabled disabled disabled" {
		t.Errorf("after the installation with Fedora's presets units are %s", got)
	}
	for _, user := range []string{"sluice", "sluice-noded"} {
		h.Do("", "getent", "passwd", user)
	}
	h.Do("", "systemctl", "enable", "--now", "sluice-ctld", "sluice-noded")
	h.idle()
	rpmUpgrade(h, rpms, later)
	rpmErase(h, rpms)
}

// rpmUpgrade: daemons that run are those of the new packages, a job does not notice, own configuration stays.
func rpmUpgrade(h rpmHost, rpms, later []string) {
	t := h.t
	h.Do("", "sh", "-c", "echo '# ours' | tee -a /etc/slurm/slurm.conf >>/etc/default/sluice-noded")
	id := h.Do("ada", "sh", "-c", `cd /home/ada && sbatch --parsable -o long --wrap 'echo $$; until [ -e end ]; do sleep 0.2; done; echo done'`)
	h.Until("the job runs", func() bool { return h.Run("", "cat", "/home/ada/long").Out != "" })
	for _, step := range []struct {
		what string
		args []string
	}{{"the upgrade", append([]string{"-U"}, later...)}, {"the downgrade", append([]string{"-U", "--oldpackage"}, rpms...)}} {
		before := []string{h.Shown("sluice-ctld", "MainPID"), h.Shown("sluice-noded", "MainPID")}
		h.rpm(step.args...)
		for i, unit := range []string{"sluice-ctld", "sluice-noded"} {
			pid := h.Shown(unit, "MainPID")
			if pid == before[i] || pid == "0" {
				t.Errorf("after %s the process of %s is %s, as before", step.what, unit, pid)
			}
			if exe := h.Do("", "readlink", "/proc/"+pid+"/exe"); exe != "/usr/sbin/"+unit {
				t.Errorf("after %s %s runs %s", step.what, unit, exe)
			}
		}
		if got := h.enabled(); got != "enabled enabled disabled" {
			t.Errorf("after %s units are %s", step.what, got)
		}
		h.Until("the node is back", func() bool { return h.Run("ada", "sinfo", "-h", "-o", "%T").Out == "mixed\n" })
		if got := h.Do("ada", "squeue", "-h", "-o", "%A %T", "-j", id); got != id+" RUNNING" {
			t.Errorf("after %s the job is %q", step.what, got)
		}
		if r := h.Run("", "grep", "-c", "ours", "/etc/slurm/slurm.conf", "/etc/default/sluice-noded"); strings.Contains(r.Out, ":0") {
			t.Errorf("after %s changed files were not kept: %v", step.what, r)
		}
	}
	h.Do("ada", "touch", "/home/ada/end")
	h.Until("the job has ended", func() bool {
		return h.Run("ada", "sacct", "-nXP", "-j", id, "-o", "state,exitcode").Out == "COMPLETED|0:0\n"
	})
}

// rpmErase: what is left is the state and what was changed; installed again, the cluster has its accounting, and presets that enable the
// units do.
func rpmErase(h rpmHost, rpms []string) {
	t := h.t
	names := strings.Fields(h.rpm("-qa", "--qf", "%{NAME}\n", "sluice*"))
	if len(names) != len(rpms) {
		t.Errorf("installed are %v", names)
	}
	said := h.rpm(append([]string{"-e"}, names...)...)
	for _, words := range []string{"stay in /var/lib/sluice/ctld", "/etc/slurm/slurm.conf has been changed, and stays",
		"the host's key in /etc/sluice/tls"} {
		if !strings.Contains(said, words) {
			t.Errorf("the removal does not say %q: %s", words, said)
		}
	}
	if r := h.Run("", "sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null | grep ^sluice"); r.Out != "" {
		t.Errorf("after the removal there run: %s", r.Out)
	}
	left := h.Do("", "sh", "-c", "find / -xdev \\( -path /proc -o -path /sys -o -path /var/lib/sluice -o -path /home -o -path /var/log "+
		"-o -path /etc/sluice -o -path /rpms -o -path /rpms99 -o -path /machine \\) -prune -o \\( -iname '*sluice*' -o -iname '*slurm*' \\) -print | sort")
	if left != "/etc/default/sluice-noded.rpmsave\n/etc/slurm\n/etc/slurm/slurm.conf" {
		t.Errorf("after the removal there is: %s", left)
	}
	h.Do("", "sh", "-c", "echo 'enable sluice-ctld.service\nenable sluice-noded.service\ndisable *' >"+fedora)
	h.rpm(append([]string{"-i"}, rpms...)...)
	if got := h.enabled(); got != "enabled enabled disabled" {
		t.Errorf("with presets of the site units are %s", got)
	}
	h.Do("", "systemctl", "start", "sluice-ctld", "sluice-noded")
	h.idle()
	if got := h.Do("", "sacct", "-nXP", "-j", "1", "-o", "user,state"); got != "ada|COMPLETED" {
		t.Errorf("of the first job there is %q", got)
	}
}
