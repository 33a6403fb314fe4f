package roletest

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// filter applies a filter of the collection to arguments, and gives what comes out as JSON has it.
func filter(t *testing.T, name string, args ...any) any {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing: apt install python3")
	}
	in, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "-c", "import json, sys\nsys.path.insert(0, '../plugins/filter')\nimport sluice\n"+
		"print(json.dumps(sluice.FilterModule().filters()[sys.argv[1]](*json.load(sys.stdin))))", name)
	cmd.Stdin = strings.NewReader(string(in))
	text, err := cmd.CombinedOutput()
	var out any
	if err != nil || json.Unmarshal(text, &out) != nil {
		t.Fatalf("%s(%s): %v: %s", name, in, err, text)
	}
	return out
}

// like reads JSON, for comparison with what filter gives.
func like(t *testing.T, text string) (out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMemoryPerCPU: what a job gets that says no --mem is what each node has for each CPU, and nothing where that is not known.
func TestMemoryPerCPU(t *testing.T) {
	for _, c := range []struct{ nodes, want string }{
		{`[{"name": "n1", "CPUs": 4, "RealMemory": 8001}, {"NodeName": "n2", "cpus": "2", "RealMemory": "16G"}]`, "2000"},
		{`[{"name": "n1", "Boards": 1, "SocketsPerBoard": 2, "CoresPerSocket": 8, "ThreadsPerCore": 2, "RealMemory": 64000}]`, "2000"},
		{`[{"name": "n1", "Sockets": 2, "CoresPerSocket": 8, "RealMemory": 64000, "MemSpecLimit": 16000}]`, "3000"},
		{`[{"name": "DEFAULT", "CPUs": 8}, {"name": "n1", "RealMemory": 8000}, {"name": "default", "RealMemory": 4000},
			{"name": "n2"}]`, "500"},
		{`[{"name": "n1", "CPUs": 4, "RealMemory": 8000}, {"name": "n2", "CPUs": 4}]`, `""`}, // RealMemory=1
		{`[{"name": "n1", "CPUs": 4, "RealMemory": "much"}]`, `""`},
		{`[]`, `""`},
	} {
		if got := filter(t, "sluice_memory_per_cpu", like(t, c.nodes)); !reflect.DeepEqual(got, like(t, c.want)) {
			t.Errorf("%s: %v, want %s", c.nodes, got, c.want)
		}
	}
}

// TestControllerAddress: hosts look for the controller where slurm.conf says, since their tokens say the same.
func TestControllerAddress(t *testing.T) {
	for text, want := range map[string]string{
		"SlurmctldHost=head(10.0.0.1)\nSlurmctldHost=spare(10.0.0.2)\n": "10.0.0.1",
		"slurmctldhost = head # one\n":                                  "head",
		"ControlMachine=head\nControlAddr=10.0.0.3\n":                   "10.0.0.3",
		"ControlMachine=head\n":                                         "head",
		"ClusterName=lab\n":                                             "other",
	} {
		if got := filter(t, "sluice_controller_address", filter(t, "sluice_conf_dict", text), "other"); got != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}

// TestGresLines: an entry with nodes keeps the name of its resource.
func TestGresLines(t *testing.T) {
	for entry, want := range map[string]string{
		`{"NodeName": "gpu[01-10]", "Name": "gpu", "Type": "tesla"}`: "NodeName=gpu[01-10] Name=gpu Type=tesla",
		`{"nodename": "g1", "name": "gpu"}`:                          "NodeName=g1 name=gpu",
		`{"name": "gpu", "File": "/dev/nvidia[0-3]"}`:                "Name=gpu File=/dev/nvidia[0-3]",
		`{"AutoDetect": "nvml"}`:                                     "AutoDetect=nvml",
	} {
		if got := filter(t, "sluice_gres_line", like(t, entry)); got != want {
			t.Errorf("%s: %v, want %s", entry, got, want)
		}
	}
	if got := filter(t, "sluice_record_line", "NodeName", like(t, `{"name": "n1", "CPUs": 4}`)); got != "NodeName=n1 CPUs=4" {
		t.Error(got)
	}
}

// TestQOSCommands: what a real sacctmgr (22.05) shows of QOS becomes commands that make them: all names first, since one may preempt
// another, only what somebody has set, and times in the units that sacctmgr takes.
func TestQOSCommands(t *testing.T) {
	const table = "Name|Descr|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpWall|MaxWall\n" +
		"normal|Normal QOS default|0|00:00:00|||cluster|||1.000000|||\n" +
		"high|very high|100|1-00:00:30|normal|00:10:00|requeue|DenyOnLimit,NoDecay|0.100000|0.500000|cpu=100,gres/gpu=8|10:00:00|1-00:00:00\n" +
		"plain||0|00:00:00|||cluster|||1.000000|||\n"
	const modify = `["modify", "qos", "normal", "set", "Descr=Normal QOS default"], ["modify", "qos", "high", "set", "Descr=very high",
		"Priority=100", "GraceTime=86430", "Preempt=normal", "PreemptExemptTime=00:10:00", "PreemptMode=requeue", "Flags=DenyOnLimit,NoDecay",
		"UsageThres=0.100000", "UsageFactor=0.500000", "GrpTRES=cpu=100,gres/gpu=8", "GrpWall=10:00:00", "MaxWall=1-00:00:00"]]`
	for _, c := range []struct{ there, want string }{
		{"normal\n", `[["add", "qos", "high,plain"], ` + modify},
		{"normal\nplain\nhigh\n", `[` + modify},
	} {
		if got := filter(t, "sluice_qos_commands", table, c.there); !reflect.DeepEqual(got, like(t, c.want)) {
			t.Errorf("where there is %q: %v\nwant %s", c.there, got, c.want)
		}
	}
	if got := filter(t, "sluice_qos_commands", "", "normal\n"); !reflect.DeepEqual(got, []any{}) {
		t.Errorf("of nothing: %v", got)
	}
}
