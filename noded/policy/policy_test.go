package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// nobodysUID is in no passwd file.
const nobodysUID = 3_999_999_999

func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func TestUsers(t *testing.T) {
	strict := func(change func(*Policy)) *Judge {
		p := Default()
		if change != nil {
			change(&p)
		}
		return &Judge{Policy: p}
	}
	anybody := func(p *Policy) { p.NeedAccount = false }
	for _, c := range []struct {
		what     string
		j        *Judge
		uid, gid uint32
		groups   []uint32
		want     string
	}{
		{"root", strict(nil), 0, 0, nil, "jobs of root"},
		{"root, allowed", strict(func(p *Policy) { p.RootJobs = true }), 0, 0, []uint32{0, 4}, ""},
		{"a system user", strict(nil), 1, 1, nil, "MinimumUID=1000"},
		{"a system user, allowed", strict(func(p *Policy) { p.MinUID = 1 }), 1, 1, nil, ""},
		{"nobody", strict(nil), 65534, 65534, nil, "MinimumUID=1000"},
		{"nobody's group", strict(anybody), nobodysUID, 65534, nil, "not in group 65534"},
		{"nobody, allowed", strict(func(p *Policy) { p.MinUID = 1 }), 65534, 65534, nil, ""},
		{"an account of a large directory", strict(anybody), 65535, 65535, []uint32{1 << 30}, ""},
		{"without an account", strict(nil), nobodysUID, nobodysUID, nil, "no account"},
		{"without an account, allowed", strict(anybody), nobodysUID, nobodysUID, []uint32{nobodysUID}, ""},
		{"in root's group", strict(anybody), nobodysUID, 0, nil, "not in group 0"},
		{"in a group of the system", strict(anybody), nobodysUID, nobodysUID, []uint32{6}, "not in group 6"},
		{"in root's group, system users allowed", strict(func(p *Policy) { p.MinUID = 0 }), 1, 1, []uint32{0}, "not in group 0"},
		{"as root already is", strict(anybody), 1<<32 - 1, nobodysUID, nil, "is no user"},
		{"in the group that root already has", strict(anybody), nobodysUID, 1<<32 - 1, nil, "is no user"},
		{"in no group", strict(anybody), nobodysUID, nobodysUID, []uint32{1<<32 - 1}, "is no user"},
		{"no user, not judged", &Judge{}, 1<<32 - 1, 1, nil, "is no user"},
		{"not judged", &Judge{}, 0, 0, []uint32{6}, ""},
	} {
		refused(t, c.what, c.j.User(c.uid, c.gid, c.groups), c.want)
	}
}

func TestPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	dir := t.TempDir()
	file := func(name string, uid int) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, 0); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, users, spooled := file("site/prolog", 0), file("users", 4711), file("spool/steps/1.1.1/script", 0)
	j := &Judge{Policy: Policy{Strict: true, Spool: filepath.Join(dir, "spool")}}
	refused(t, "root's", j.Program(good), "")
	refused(t, "a user's", j.Program(users), "belongs to uid 4711")
	refused(t, "a job's script", j.Program(spooled), "holds no programs")
	refused(t, "what a process has open", j.Program("/proc/self/exe"), "")
	refused(t, "a device", j.Program("/dev/null"), "writable by everybody")
	refused(t, "a relative path", j.Program("prolog"), "not an absolute path")
	j.Owners = []uint32{4711}
	refused(t, "a trusted owner's", j.Program(users), "")
	j.Folders = []string{filepath.Join(dir, "site")}
	refused(t, "in a folder of the policy", j.Program(good), "")
	refused(t, "elsewhere", j.Program(users), "ProgramFolders")
	refused(t, "beside the folder", j.Program(file("sitex", 0)), "ProgramFolders")
	refused(t, "not judged", (&Judge{}).Program(users), "")

	j = &Judge{Policy: Policy{Strict: true, Own: Own{RebootProgram: good + " -f now"}}}
	refused(t, "reboot", j.Reboot([]string{good}), "")
	refused(t, "reboot as configured", j.Reboot([]string{good, "-f", "now"}), "")
	refused(t, "reboot with other arguments", j.Reboot([]string{"/bin/sh", "-c", "id"}), "with arguments")
	refused(t, "a user's reboot", j.Reboot([]string{users}), "belongs to uid 4711")
	refused(t, "a folder", j.Dir("/etc"), "not named")
	j.SetOwn(Own{StatDir: "/srv/stat"})
	refused(t, "the node's own folder", j.Dir("/srv/stat"), "")
}

func TestEnvironments(t *testing.T) {
	j := &Judge{Policy: Default()}
	fixed := []string{"PATH=/bin", "SLURM_CONF=/etc/slurm/slurm.conf"}
	got, err := j.Env([]string{"PATH=/home/evil", "SLURM_CONF=/home/evil", "SLUICE_SOCKET=/home/evil", "SLURM_JOB_NAME=a b\nc",
		"CUDA_VISIBLE_DEVICES=0"}, fixed)
	if want := append(slices.Clone(fixed), "SLURM_JOB_NAME=a b\nc", "CUDA_VISIBLE_DEVICES=0"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, evil := range []string{"LD_PRELOAD=/x", "BASH_ENV=/x", "HOME=/x", "BASH_FUNC_ls%%=() { id; }", "PYTHONPATH=/x", "IFS=x",
		"=x", "x", "SLURM_A=\x00LD_PRELOAD=/x", "LD_LIBRARY_PATH=/x"} {
		if got, err := j.Env([]string{evil}, nil); err == nil {
			t.Errorf("%q is passed on: %q", evil, got)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	if p, err := Load(dir); err != nil || !p.Strict || p.RootJobs || p.MinUID != 1000 || !p.NeedAccount {
		t.Errorf("without a file: %+v, %v", p, err)
	}
	write := func(text string, mode os.FileMode) {
		path := filepath.Join(dir, File)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("the file has to be root's")
	}
	write("# of this node\nAllowRootJobs = yes\nminimumuid=500 # system users\nRequireAccount=no\nTrustedOwners=root,4711\n"+
		"ProgramFolders=/etc/slurm/ /opt/site\n", 0o644)
	p, err := Load(dir)
	if err != nil || !p.RootJobs || p.MinUID != 500 || p.NeedAccount || !slices.Equal(p.Owners, []uint32{0, 4711}) ||
		!slices.Equal(p.Folders, []string{"/etc/slurm", "/opt/site"}) {
		t.Errorf("%+v, %v", p, err)
	}
	write("AllowRootJobs=maybe\nMinimumUID=many\nProgramFolders=etc\nTrustedOwners=nosuchuser\nAllowEverything=yes\nnonsense\n", 0o644)
	_, err = Load(dir)
	for _, want := range []string{"node.conf:1: \"maybe\"", ":2:", ":3:", ":4:", ":5: unknown key AllowEverything", ":6:"} {
		refused(t, "a file with faults", err, want)
	}
	write("AllowRootJobs=yes\n", 0o666)
	_, err = Load(dir)
	refused(t, "a file that everybody can write", err, "writable by everybody")
}

// TestLimitsAreHeld: no limit above the daemon's own.
func TestLimitsAreHeld(t *testing.T) {
	b := &pb.Bundle{Rlimits: []*pb.Rlimit{{Resource: 7, Soft: 50, Hard: 1 << 60}, {Resource: 8, Soft: 1 << 60, Hard: 5}}}
	if err := (&Judge{Policy: Default()}).Hold(b, func(int) uint64 { return 100 }); err != nil {
		t.Fatal(err)
	}
	if a, z := b.Rlimits[0], b.Rlimits[1]; a.Soft != 50 || a.Hard != 100 || z.Soft != 100 || z.Hard != 5 {
		t.Errorf("%v", b.Rlimits)
	}
}
