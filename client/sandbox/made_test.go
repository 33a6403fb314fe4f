package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree lists everything below a folder, with the content of files.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b, _ := os.ReadFile(path)
		all = append(all, strings.TrimPrefix(path, dir)+"="+string(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAFolderThatIsSomebodysIsLeftAlone(t *testing.T) {
	for name, file := range map[string]string{
		"its env.sh": "env.sh", "its logs": "log/mine.log", "its state": "state/x", "a hidden file": ".config",
		"a slurm.conf": "slurm.conf",
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, file), "precious")
		before := tree(t, dir)
		_, err := Up(context.Background(), UpOptions{Dir: dir})
		if first := strings.Split(file, "/")[0]; err == nil || !strings.Contains(err.Error(), "not empty ("+first+")") {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := Down(context.Background(), DownOptions{Dir: dir, Wipe: true}); err != nil || s.Wiped {
			t.Errorf("%s: Down says %+v, %v", name, s, err)
		}
		if after := tree(t, dir); !slices.Equal(before, after) {
			t.Errorf("%s: the folder had %q and has %q", name, before, after)
		}
	}
}

// prepared makes a cluster's folder as Up does, without its daemons.
func prepared(t *testing.T, path string) *upper {
	t.Helper()
	d, made, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	u := &upper{dir: d, made: made, rec: &record{Version: recordVersion, Started: true, Conf: d.ownConf(), Cluster: "x", Nodes: 1}}
	u.rec.Made = append(append([]string{recordName, lockFile, envName, "bin"}, folders...), confNames...)
	if len(made) > 0 {
		u.rec.Made = append(u.rec.Made, ".")
	}
	if err := d.save(u.rec); err != nil {
		t.Fatal(err)
	}
	if err := d.makeFolders(); err != nil {
		t.Fatal(err)
	}
	if err := d.generate(1, false); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"state/sluice.db", "log/ctld.log", "log/noded.n1.log", "spool/n1/x/y", "tls/n1/node.key", envName,
		"." + envName + ".123"} {
		put(t, d.join(file), "ours")
	}
	if err := os.Mkdir(d.join("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/sluice", d.join("bin", "sbatch")); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestWipeDeletesWhatUpMade(t *testing.T) {
	parent := t.TempDir()
	u := prepared(t, filepath.Join(parent, "a", "c"))
	s, err := Down(context.Background(), DownOptions{Dir: string(u.dir), Wipe: true})
	if err != nil || !s.Wiped || len(s.Left) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if left := tree(t, parent); len(left) != 2 { // parent and a, which may be wanted again
		t.Errorf("left is %q", left)
	}
}

func TestWipeLeavesWhatUpDidNotMake(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	u := prepared(t, dir)
	for _, file := range []string{"log/mine.log", "bin/tool", "gres.conf", "results/a/b"} {
		put(t, u.dir.join(file), "mine")
	}
	// The state was moved to another disk.
	put(t, filepath.Join(elsewhere, "sluice.db"), "moved")
	if err := os.RemoveAll(u.dir.join("state")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, u.dir.join("state")); err != nil {
		t.Fatal(err)
	}
	s, err := Down(context.Background(), DownOptions{Dir: dir, Wipe: true})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(s.Left)
	if want := []string{elsewhere + ", where state was a link to", "bin/tool", "gres.conf", "log/mine.log",
		"results"}; !slices.Equal(s.Left, want) {
		t.Errorf("left is said to be %q, want %q", s.Left, want)
	}
	want := []string{"=", "/bin=", "/bin/tool=mine", "/gres.conf=mine", "/log=", "/log/mine.log=mine", "/results=", "/results/a=",
		"/results/a/b=mine"}
	if left := tree(t, dir); !slices.Equal(left, want) {
		t.Errorf("left is %q, want %q", left, want)
	}
	if left := tree(t, elsewhere); len(left) != 2 {
		t.Errorf("what a link led to is now %q", left)
	}
}

// A folder that existed before, and was empty, is there afterwards.
func TestWipeLeavesTheFolderThatWasThere(t *testing.T) {
	dir := t.TempDir()
	prepared(t, dir)
	if s, err := Down(context.Background(), DownOptions{Dir: dir, Wipe: true}); err != nil || len(s.Left) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if left := tree(t, dir); len(left) != 1 {
		t.Errorf("left is %q", left)
	}
}

func TestADamagedRecordDeletesNothing(t *testing.T) {
	dir := t.TempDir()
	u := prepared(t, dir)
	put(t, u.dir.recordFile(), "garbage")
	before := tree(t, dir)
	if _, err := Down(context.Background(), DownOptions{Dir: dir, Wipe: true}); err == nil ||
		!strings.Contains(err.Error(), "lost or damaged") {
		t.Errorf("Down says %v", err)
	}
	if after := tree(t, dir); len(after) != len(before)+1 { // the lock
		t.Errorf("%q has become %q", before, after)
	}
}

// A call that was killed before it started anything: the next one begins anew, whatever it asks for.
func TestAHalfMadeClusterIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	u := prepared(t, dir)
	u.rec.Started, u.rec.GPUs, u.rec.Nodes = false, "foo:4", 7
	if err := u.dir.save(u.rec); err != nil {
		t.Fatal(err)
	}
	again := &upper{dir: u.dir, rec: u.rec, o: UpOptions{Dir: dir}}
	if err := again.beginAnew(); err != nil || again.rec != nil {
		t.Fatalf("%v, %v", again.rec, err)
	}
	want := []string{"=", "/cluster.json", "/log=", "/log/ctld.log=ours", "/log/noded.n1.log=ours"}
	left := tree(t, dir)
	for i := range left {
		if strings.HasPrefix(left[i], "/cluster.json=") {
			left[i] = "/cluster.json"
		}
	}
	if !slices.Equal(left, want) {
		t.Errorf("left is %q, want %q", left, want)
	}
}

func TestAFailedUpLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	bad := filepath.Join(parent, "bad.conf")
	put(t, bad, "ClusterName=x\nNonsense=1\n")
	for name, o := range map[string]UpOptions{
		"a configuration with faults":  {Conf: bad},
		"a configuration that is none": {Conf: filepath.Join(parent, "none")},
		"programs that are missing":    {Nodes: 2},
		"GPUs, programs missing":       {GPUs: "foo:4"},
	} {
		t.Setenv("PATH", "/nonexistent")
		o.Dir = filepath.Join(parent, "deep", "c")
		if _, err := Up(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left := tree(t, parent); len(left) != 2 {
			t.Errorf("%s: left is %q", name, left)
		}
	}
}

func TestRootKeepsOutOfFoldersThatUsersCanRename(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has others to fear: run as root")
	}
	t.Setenv("SUDO_UID", "")
	parent := t.TempDir()
	dir := filepath.Join(parent, "c")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(parent, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := existingDir(dir); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") {
		t.Errorf("in another user's folder: %v", err)
	}
	t.Setenv("SUDO_UID", "12345")
	if _, err := existingDir(dir); err != nil {
		t.Errorf("in the folder of who became root: %v", err)
	}
	if err := os.Chown(parent, 0, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := existingDir(dir); err == nil || !strings.Contains(err.Error(), "others can write to its parent") {
		t.Errorf("in a folder that all may write to: %v", err)
	}
}

// An editor that replaces files leaves the user's changes in the place of the link to the configuration: they are not deleted.
func TestAnEditedConfigurationIsKept(t *testing.T) {
	d := Dir(t.TempDir())
	rec := &record{Made: []string{"env.sh", "slurm.conf"}, Conf: "/etc/slurm/slurm.conf"}
	if err := os.Symlink(rec.Conf, d.ownConf()); err != nil {
		t.Fatal(err)
	}
	if got := d.stillMade(rec); !slices.Contains(got, "slurm.conf") {
		t.Errorf("the link is not deleted: %q", got)
	}
	if err := os.Remove(d.ownConf()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.ownConf(), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := d.stillMade(rec); slices.Contains(got, "slurm.conf") {
		t.Errorf("the user's file is deleted: %q", got)
	}
	rec.Conf = d.ownConf() // one that Up has written
	if got := d.stillMade(rec); !slices.Contains(got, "slurm.conf") {
		t.Errorf("a file that Up made is not deleted: %q", got)
	}
}
