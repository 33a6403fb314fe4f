package gpus

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
)

const gpuNow = int64(1_000_000e9)

func someGPUs() []*msg.GpuRecord {
	card := func(i uint32, typ string, mem uint64) *msg.Device {
		return &msg.Device{Name: "gpu", Type: typ, Index: i, Id: "GPU-" + typ, MemoryMib: mem}
	}
	busy := &msg.DeviceSample{UtilPercent: 97, MemoryUsedMib: 39014, TemperatureC: 71, PowerMw: 388_400, EccUncorrected: -1,
		Throttle: "power cap"}
	idle := &msg.DeviceSample{UtilPercent: 0, MemoryUsedMib: 410, TemperatureC: 34, PowerMw: 58_000,
		Throttle: "power cap, power brake, thermal"}
	silent := &msg.DeviceSample{UtilPercent: -1, MemoryUsedMib: -1, TemperatureC: -1, PowerMw: -1, EnergyMj: -1, SmClockMhz: -1,
		MemoryClockMhz: -1, EccUncorrected: -1, Throttle: "n/a"}
	shared := card(2, "v100", 16384)
	shared.Shares, shared.SharedAs = 8, "shard"
	return []*msg.GpuRecord{
		{Node: "g1", Device: card(0, "a100", 40960), Sample: busy, State: "alloc",
			Owners: []*msg.GpuOwner{{JobId: 41, Id: "41", User: "alice"}}},
		{Node: "g1", Device: card(1, "a100", 40960), Sample: idle, State: "alloc",
			Owners: []*msg.GpuOwner{{JobId: 42, Id: "42_7", User: "bob", StartNs: gpuNow - 600e9}}, IdleSinceNs: gpuNow - 3600e9},
		{Node: "g1", Device: shared, Sample: silent, State: "mixed", Owners: []*msg.GpuOwner{{Id: "43", User: "carol", Share: 3},
			{Id: "44", User: "carol", Share: 1}}},
		{Node: "g1", Device: card(3, "a100", 40960), State: "fault", Why: "XID 79\x1b[31m"},
		{Node: "w1", Device: card(0, "", 0), Sample: idle, State: "idle", IdleSinceNs: gpuNow - 3600e9},
	}
}

func TestGPUTable(t *testing.T) {
	var b strings.Builder
	if err := (&options{}).print(&b, answer{list: someGPUs(), nowNS: gpuNow}); err != nil {
		t.Fatal(err)
	}
	want := `NODE  GPU  TYPE  MEMORY      UTIL  TEMP  POWER  STATE  JOB                     USER   NOTE
g1    0    a100  38.1/40.0G  97%   71C   388W   alloc  41                      alice
g1    1    a100  0.4/40.0G   0%    34C   58W    alloc  42_7                    bob    idle for 10m0s; throttled: power brake, thermal
g1    2    v100  n/a/16.0G   n/a   n/a   n/a    mixed  43(shard:3),44(shard:1)  carol
g1    3    a100  n/a/40.0G   n/a   n/a   n/a    fault  -                       -      XID 79\x1b[31m
w1    0    -     0.4         0%    34C   58W    idle   -                       -      throttled: power brake, thermal
5 GPUs: 2 alloc, 1 mixed, 1 idle, 1 fault; 1 allocated to jobs that leave them idle
`
	if squeeze(b.String()) != squeeze(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for name, tt := range map[string]struct {
		o    options
		want string
	}{"free": {options{free: true, bare: true}, "2 0"}, "idle": {options{idle: true, bare: true}, "1"},
		"none": {options{free: true, idle: true, bare: true}, "2 0"}} {
		b.Reset()
		if err := tt.o.print(&b, answer{list: someGPUs(), nowNS: gpuNow}); err != nil {
			t.Fatal(err)
		}
		var index []string
		for line := range strings.Lines(b.String()) {
			index = append(index, strings.Fields(line)[1])
		}
		if got := strings.Join(index, " "); got != tt.want {
			t.Errorf("--%s shows %s, want %s", name, got, tt.want)
		}
	}
}

func squeeze(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
}

// TestGPUJSON: what is not known is null, never 0.
func TestGPUJSON(t *testing.T) {
	var b strings.Builder
	if err := (&options{json: true}).print(&b, answer{list: someGPUs(), nowNS: gpuNow}); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		GPUs []map[string]any `json:"gpus"`
		Now  int64            `json:"now"`
	}
	if err := json.Unmarshal([]byte(b.String()), &doc); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if len(doc.GPUs) != 5 || doc.Now != gpuNow/1e9 {
		t.Fatalf("%d GPUs at %d", len(doc.GPUs), doc.Now)
	}
	for i, want := range []any{97.0, 0.0, nil, nil, 0.0} {
		if got := doc.GPUs[i]["utilization_percent"]; got != want {
			t.Errorf("GPU %d: utilization %v, want %v", i, got, want)
		}
	}
	if doc.GPUs[1]["idle_since"] != float64((gpuNow-600e9)/1e9) || doc.GPUs[0]["idle_since"] != nil ||
		doc.GPUs[0]["ecc_uncorrected"] != nil {
		t.Errorf("idle since %v and %v, ECC %v", doc.GPUs[1]["idle_since"], doc.GPUs[0]["idle_since"], doc.GPUs[0]["ecc_uncorrected"])
	}
}

func TestGPUOptions(t *testing.T) {
	var out, errs strings.Builder
	var o *options
	v := Verb()
	v.Run = func(call *command.Call) error {
		o = &options{}
		return call.Each(o.set)
	}
	parse := func(args ...string) int {
		return v.Main(&command.Env{Name: "sluice gpus", Stdout: &out, Stderr: &errs}, args)
	}
	if parse("-w", "g[1-2]", "--partition=a,b", "--watch=0.5", "--free", "-n") != 0 || o.request.Nodes[0] != "g[1-2]" ||
		len(o.request.Partitions) != 2 || o.every != 500*time.Millisecond || !o.free || !o.bare {
		t.Errorf("%+v %s", o, errs.String())
	}
	if parse("--watch") != 0 || o.every != 2*time.Second {
		t.Errorf("--watch: %+v %s", o, errs.String())
	}
	for _, bad := range [][]string{{"--watch=0"}, {"--watch=often"}, {"--gpu"}, {"g1"}} {
		if parse(bad...) == 0 {
			t.Errorf("%q is accepted", bad)
		}
	}
	if parse("--free", "-h") != 0 || !strings.HasPrefix(out.String(), "Usage: sluice gpus") {
		t.Errorf("-h: %s", out.String())
	}
}

// TestManyGPUs: more GPUs than fit on a screen are a line for each node, unless each is asked for.
func TestManyGPUs(t *testing.T) {
	list := someGPUs()
	for range screenful {
		list = append(list, list[4])
	}
	var b strings.Builder
	if err := (&options{}).print(&b, answer{list: list, nowNS: gpuNow}); err != nil {
		t.Fatal(err)
	}
	const want = `NODE GPUS TYPE MEMORY UTIL TEMP POWER STATE USER NOTE
g1 4 a100,v100 38.5/136.0G 48% 71C 446W 2 alloc, 1 mixed, 1 fault alice,bob,carol ` +
		`1: idle for 10m0s; throttled: power brake, thermal; 3: XID 79\x1b[31m
w1 41 - 16.4 0% 34C 2378W 41 idle - 0: throttled`
	if got := squeeze(b.String()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "each GPU: sluice gpus -w NODE, or --all\n") {
		t.Errorf("got\n%s", got)
	}
	for name, o := range map[string]options{"--all": {all: true}, "-n": {bare: true},
		"-w": {request: msg.GpusRequest{Nodes: []string{"g1"}}}} {
		b.Reset()
		if err := o.print(&b, answer{list: list, nowNS: gpuNow}); err != nil || strings.Count(b.String(), "\n") < len(list) {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

// TestNoGPUs: why there are none is said of each node, and only there.
func TestNoGPUs(t *testing.T) {
	none := []*msg.NoGpus{{Nodes: []string{"n1", "n2", "n4"}, Why: "no library"}, {Nodes: []string{"w1"}, Why: "bad\x1b[31m"}}
	for name, tt := range map[string]struct {
		o    options
		want string
	}{
		"table": {options{}, "0 GPUs\nn[1-2,4]: no library\nw1: bad\\x1b[31m\n"},
		"bare":  {options{bare: true}, ""},
	} {
		var b strings.Builder
		if err := tt.o.print(&b, answer{none: none, nowNS: gpuNow}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(got, tt.want) || tt.o.bare && got != "" {
			t.Errorf("%s: %q, want %q at its end", name, got, tt.want)
		}
	}
}
