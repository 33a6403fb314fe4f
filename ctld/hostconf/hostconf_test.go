package hostconf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-hpc/sluice/conf"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder is one of slurm.conf, as the controller has it.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return folder{t, dir}
}

func (f folder) write(name string, mode os.FileMode, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	must(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(f.t, os.WriteFile(path, []byte(text), 0o600))
	must(f.t, os.Chmod(path, mode)) // whatever the umask
}

// conf writes a slurm.conf that says this besides what every one has.
func (f folder) conf(more string) {
	f.t.Helper()
	f.write("slurm.conf", 0o644, "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=ALL\n"+more)
}

// make is Make of what the file says now.
func (f folder) make(path string) (*pb.ConfigurationBundle, []byte, []error, error) {
	f.t.Helper()
	seen := map[string][]byte{}
	c, err := conf.Load(path, conf.Options{ReadFile: func(path string) ([]byte, error) {
		b, err := os.ReadFile(path)
		if err == nil {
			seen[path] = b
		}
		return b, err
	}})
	must(f.t, err)
	raw, faults, err := Make(c, seen, uint32(os.Getuid()))
	b := &pb.ConfigurationBundle{}
	must(f.t, proto.Unmarshal(raw, b))
	return b, raw, faults, err
}

// listing is the names of a bundle with their modes.
func listing(b *pb.ConfigurationBundle) map[string]string {
	all := map[string]string{}
	for _, f := range b.Files {
		all[f.Name] = fmt.Sprintf("%#o", f.Mode)
	}
	return all
}

// TestMake: a host gets the files that were read, and the programs below their folder. A file that users may not read here is not readable
// for them there.
func TestMake(t *testing.T) {
	f := newFolder(t)
	other := newFolder(t)
	other.write("outside.conf", 0o644, "MailDomain=x.example\n")
	other.write("own.sh", 0o755, "#!/bin/sh\n")
	f.write("nodes.conf", 0o640, "NodeName=n2 CPUs=8\n")
	f.write("cgroup.conf", 0o600, "ConstrainCores=yes\n")
	f.write("prolog.d/1.sh", 0o700, "#!/bin/sh\n")
	f.write("prolog.d/2.sh", 0o775, "#!/bin/sh\n")
	f.write("prolog.d/notes", 0o644, "\n")
	must(t, os.Chmod(filepath.Join(f.dir, "prolog.d/2.sh"), 0o755))
	f.conf("Include " + f.dir + "/nodes.conf\nInclude " + other.dir + "/outside.conf\nProlog=" + f.dir + "/prolog.d/*.sh\n" +
		"Epilog=" + other.dir + "/own.sh\n")

	b, raw, faults, err := f.make(filepath.Join(f.dir, "slurm.conf"))
	must(t, errors.Join(append(faults, err)...))
	want := map[string]string{"slurm.conf": "0644", "nodes.conf": "0600", "cgroup.conf": "0600", "prolog.d/1.sh": "0700",
		"prolog.d/2.sh": "0755", "elsewhere" + other.dir + "/outside.conf": "0644"}
	if d := cmp.Diff(want, listing(b)); d != "" {
		t.Errorf("a host gets (-want +got)\n%s", d)
	}
	if _, again, _, _ := f.make(filepath.Join(f.dir, "slurm.conf")); Hash(again) != Hash(raw) {
		t.Error("the same files have another hash")
	}

	// A slurm.conf that is a link has its files beside what it leads to.
	link := newFolder(t)
	must(t, os.Symlink(filepath.Join(f.dir, "slurm.conf"), filepath.Join(link.dir, "lab.conf")))
	b, _, faults, err = f.make(filepath.Join(link.dir, "lab.conf"))
	must(t, errors.Join(append(faults, err)...))
	names := slices.Sorted(maps.Keys(listing(b)))
	if !slices.Contains(names, "slurm.conf") || !slices.Contains(names, "prolog.d/1.sh") || b.Path != filepath.Join(link.dir, "lab.conf") {
		t.Errorf("by a link it is %s with %v", b.Path, names)
	}
}

// TestMakeFaults: a program that hosts must not get, or cannot, is named with what is wrong with it, and the rest is there.
func TestMakeFaults(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(f folder)
		conf    string // DIR is the folder
		want    string
	}{
		"plain":    {func(f folder) { f.write("p", 0o644, "") }, "Prolog=DIR/p\n", "not executable"},
		"missing":  {func(folder) {}, "Prolog=DIR/p\n", "no such file"},
		"no match": {func(folder) {}, "Epilog=DIR/e.d/*\n", "no file matches"},
		"open":     {func(f folder) { f.write("p", 0o777, "") }, "TaskProlog=DIR/p\n", "writable by everybody"},
		"open folder": {func(f folder) {
			f.write("d/p", 0o755, "")
			must(f.t, os.Chmod(f.dir+"/d", 0o777))
		}, "Prolog=DIR/d/p\n", "everybody"},
		"large": {func(f folder) { f.write("p", 0o755, strings.Repeat("x", MaxProgram+1)) }, "Prolog=DIR/p\n",
			"install it on the hosts"},
		"no file": {func(f folder) { f.write("d/p", 0o755, "") }, "HealthCheckProgram=DIR/d\nHealthCheckInterval=60\n",
			"is not a file"},
		"reboot words": {func(folder) {}, "RebootProgram=\"DIR/p now\"\n", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			c.prepare(f)
			f.conf(strings.ReplaceAll(c.conf, "DIR", f.dir))
			b, _, faults, err := f.make(filepath.Join(f.dir, "slurm.conf"))
			must(t, err)
			if text := fmt.Sprint(faults); len(faults) != 1 || !strings.Contains(text, c.want) {
				t.Errorf("it says %q, want %q", text, c.want)
			}
			if d := cmp.Diff(map[string]string{"slurm.conf": "0644"}, listing(b)); d != "" {
				t.Errorf("a host gets (-want +got)\n%s", d)
			}
		})
	}
}

// TestMakeBounds: programs beyond the total size are left out one by one. Too many files are an error.
func TestMakeBounds(t *testing.T) {
	f := newFolder(t)
	for i := range 4 {
		f.write(fmt.Sprintf("d/%d", i), 0o755, strings.Repeat("x", MaxProgram))
	}
	f.conf("Prolog=" + f.dir + "/d/*\n")
	b, raw, faults, err := f.make(filepath.Join(f.dir, "slurm.conf"))
	must(t, err)
	if len(b.Files) != 3 || len(faults) != 1 || !strings.Contains(fmt.Sprint(faults), "no room for") || len(raw) > MaxBundle {
		t.Errorf("%d files in %d bytes, and %.300v", len(b.Files), len(raw), faults)
	}
	must(t, os.RemoveAll(filepath.Join(f.dir, "d")))
	for i := range MaxFiles {
		f.write(fmt.Sprintf("d/%d", i), 0o755, "")
	}
	if _, _, _, err := f.make(filepath.Join(f.dir, "slurm.conf")); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%d files: %v", MaxFiles+1, err)
	}
}

// TestCurrent: the current bundle is signed once, and a waiter learns of each change and of nothing else.
func TestCurrent(t *testing.T) {
	signed := 0
	c := NewCurrent(func(b []byte) ([]byte, []byte, error) {
		signed++
		if string(b) == "unsigned" {
			return nil, nil, errors.New("no key")
		}
		return []byte("signature of " + string(b)), []byte("certificate"), nil
	})
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	_, _, changed, err := c.Now()
	if err == nil || closed(changed) {
		t.Fatalf("before there is any: %v", err)
	}
	c.Set([]byte("one"), nil)
	if !closed(changed) {
		t.Error("the first one is no news")
	}
	hash, got, changed, err := c.Now()
	must(t, err)
	c.Set([]byte("one"), nil)
	if again, _, _, _ := c.Now(); again != hash || hash != Hash([]byte("one")) || string(got.Signature) != "signature of one" ||
		signed != 1 || closed(changed) {
		t.Errorf("the same again: %s after %s, signed %d times", again, hash, signed)
	}
	c.Set([]byte("two"), errors.New("too large"))
	if _, _, _, err := c.Now(); err == nil || err.Error() != "too large" || !closed(changed) {
		t.Errorf("none that is good: %v", err)
	}
	c.Set([]byte("unsigned"), nil)
	if _, _, _, err := c.Now(); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("without a key: %v", err)
	}
}

// TestDiff says of programs what a reconfigure changes on hosts.
func TestDiff(t *testing.T) {
	f := newFolder(t)
	f.write("a", 0o755, "one\n")
	f.write("b", 0o755, "one\n")
	f.write("c", 0o755, "one\n")
	f.conf("Prolog=" + f.dir + "/[abc]\n")
	path := filepath.Join(f.dir, "slurm.conf")
	_, before, _, err := f.make(path)
	must(t, err)
	f.write("a", 0o755, "other\n")
	f.write("b", 0o700, "one\n")
	must(t, os.Remove(filepath.Join(f.dir, "c")))
	f.write("d", 0o755, "four\n")
	f.conf("Prolog=" + f.dir + "/[abcd]\n")
	_, after, _, err := f.make(path)
	must(t, err)
	p := "program " + f.dir
	want := []string{p + "/c: no longer distributed to hosts", p + "/a: its text has changed, 6 bytes",
		p + "/b: its mode has changed from 0755 to 0700", p + "/d: distributed to hosts, 5 bytes"}
	if d := cmp.Diff(want, Diff(before, after)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got := Diff(after, after); len(got) != 0 {
		t.Errorf("nothing has changed: %q", got)
	}
}
