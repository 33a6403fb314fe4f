package conf

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestDiff: what an administrator is told before a reconfigure.
func TestDiff(t *testing.T) {
	const head = "ClusterName=c\nSlurmctldHost=h\n"
	load := func(slurm, gres string) *Config {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{"slurm.conf": head + slurm, "gres.conf": gres} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Load(filepath.Join(dir, "slurm.conf"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.Path = "slurm.conf"
		return c
	}
	before := load("KillWait=30\nNodeName=n[1-4] CPUs=4 RealMemory=100\nNodeName=g1 CPUs=4 Gres=gpu:2\n"+
		"PartitionName=a Nodes=n[1-4] MaxTime=60\nPartitionName=b Nodes=g1\n", "NodeName=g1 Name=gpu File=/dev/nvidia[0-1]\n")
	if d := Diff(before, before); len(d) > 0 {
		t.Errorf("nothing has changed: %q", d)
	}
	after := load("# a comment\nKillWait=40\nSlurmctldPort=7000\nNodeName=n[1-3] CPUs=4 RealMemory=200\nNodeName=n9 CPUs=8 RealMemory=50\n"+
		"NodeName=g1 CPUs=4 Gres=gpu:4\nPartitionName=a Nodes=n[1-3] MaxTime=INFINITE\nPartitionName=c Nodes=n9\n",
		"NodeName=g1 Name=gpu File=/dev/nvidia[0-3]\n")
	got := Diff(before, after)
	want := []string{
		"KillWait: 30 sec -> 40 sec", "SlurmctldPort: 6817 -> 7000 (after a restart of sluice-ctld)",
		"node n4: removed", "node n[1-3]: RealMemory 100 -> 200", "node n9: new: CPUs=8 RealMemory=50 Gres=(null)",
		"node g1: Gres gpu:2 -> gpu:4",
		"partition b: removed", "partition a: Nodes n[1-4] -> n[1-3], MaxTime 60 -> UNLIMITED", "partition c: new: Nodes=n9",
		"gres.conf of g1: gpu::2 File=/dev/nvidia[0-1] -> gpu::4 File=/dev/nvidia[0-3]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDiffSeesEveryField of a node and a partition but those that say where it was written.
func TestDiffSeesEveryField(t *testing.T) {
	check := func(record any, diff func(changed any) string) {
		kind := reflect.TypeOf(record).Elem()
		for i := range kind.NumField() {
			f := kind.Field(i)
			if !f.IsExported() || f.Name == "File" || f.Name == "Line" {
				continue
			}
			changed := reflect.New(kind)
			v := changed.Elem().Field(i)
			switch v.Kind() {
			case reflect.String:
				v.SetString("x")
			case reflect.Int, reflect.Int64:
				v.SetInt(7)
			case reflect.Uint32, reflect.Uint64:
				v.SetUint(7)
			case reflect.Bool:
				v.SetBool(true)
			case reflect.Slice:
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			case reflect.Struct:
				v.Field(0).Set(reflect.ValueOf(otherThanZero(v.Field(0))).Convert(v.Field(0).Type()))
			}
			if diff(changed.Interface()) == "" {
				t.Errorf("%s.%s is not compared", kind.Name(), f.Name)
			}
		}
	}
	check(&Node{}, func(c any) string { return diffFields(&Node{}, c.(*Node)) })
	check(&Partition{}, func(c any) string { return diffFields(&Partition{}, c.(*Partition)) })
}

func otherThanZero(v reflect.Value) any {
	if v.Kind() == reflect.String {
		return "x"
	}
	if v.Kind() == reflect.Bool {
		return true
	}
	return 7
}

// TestSum: what does not count does not change it, what counts does.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum := func() string {
		c, err := Load(filepath.Join(dir, "slurm.conf"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Sum
	}
	const text = "ClusterName=c\nSlurmctldHost=h\nInclude nodes\nPartitionName=p Nodes=ALL\n"
	write("slurm.conf", text)
	write("nodes", "NodeName=n1 CPUs=2 \\\n RealMemory=100\n")
	first := sum()
	write("nodes", "# of today\n\nNodeName=n1 CPUs=2 \\\n RealMemory=100 # MiB\n")
	if sum() != first {
		t.Error("a comment counts")
	}
	write("nodes", "NodeName=n1 CPUs=2 RealMemory=101\n")
	if sum() == first {
		t.Error("a node's memory in an included file does not count")
	}
	write("nodes", "NodeName=n1 CPUs=2 \\\n RealMemory=100\n")
	write("cgroup.conf", "ConstrainCores=yes\n")
	if sum() == first {
		t.Error("cgroup.conf does not count")
	}
}
