package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/scontrol"
	"github.com/sluice-hpc/sluice/client/squeue"
	"github.com/sluice-hpc/sluice/client/view"
	"gopkg.in/yaml.v3"
)

// schema reads testdata/data_parser_v0.0.42.txt: the members of each element, with their kinds.
func schema(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/data_parser_v0.0.42.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, at := map[string]map[string]string{}, ""
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			at = name
			all[at] = map[string]string{}
		} else if name, kind, ok := strings.Cut(line, " "); ok && strings.HasPrefix(kind, "@") {
			for member, k := range all[kind[1:]] {
				all[at][name+"/"+member] = k
			}
		} else if ok && line[0] != '#' {
			all[at][name] = strings.Replace(kind, "f", "i", 1)
		}
	}
	return all
}

func kindOf(v any) string {
	switch x := v.(type) {
	case string:
		return "s"
	case bool:
		return "b"
	case float64:
		return "i"
	case []any:
		return "a"
	case map[string]any:
		keys := slices.Sorted(maps.Keys(x))
		switch strings.Join(keys, ",") {
		case "infinite,number,set":
			return "n"
		case "return_code,signal,status":
			return "x"
		}
		return "o"
	}
	return fmt.Sprintf("%T", v)
}

// kindsOf are the members of an object by their paths, with their kinds; lists are not looked into.
func kindsOf(v any, path string, kinds map[string]string) map[string]string {
	members, _ := v.(map[string]any)
	for name, m := range members {
		if below, _ := m.(map[string]any); kindOf(m) == "o" && len(below) > 0 {
			kindsOf(m, path+name+"/", kinds)
			continue
		}
		kinds[path+name] = kindOf(m)
	}
	return kinds
}

// followsSchema: v has the members that the schema names for the element, of the kinds that it names, and no others.
func followsSchema(t *testing.T, element string, v any) {
	t.Helper()
	want, got := schema(t)[element], kindsOf(v, "", map[string]string{})
	if len(want) == 0 {
		t.Fatalf("no %q in the schema", element)
	}
	for name, kind := range want {
		if got[name] != kind {
			t.Errorf("%s: %s is %q, want %q", element, name, got[name], kind)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("%s: not in the schema: %v", element, got)
	}
}

// runDocument runs a command line and reads its document.
func (s *scene) runDocument(t *testing.T, words ...string) map[string]any {
	t.Helper()
	var doc map[string]any
	out := s.mustRun(t, words...)
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v: %v in\n%s", words, err, out)
	}
	return doc
}

// Every element has the members that the schema names, of the kinds that it names, and no others.
func TestDocumentsFollowTheSchema(t *testing.T) {
	s := readScene(t, "facts.txt")
	s.resvs = []*msg.ReservationRecord{{Name: "course", StartNs: 1e18, EndNs: 2e18, Flags: []string{"MAINT"}}}
	s.licenses = []*msg.LicenseRecord{{Name: "ansys", Total: 5, Used: 2}}
	for element, argv := range map[string]string{
		"jobs": "squeue --all --states=all --json", "nodes": "scontrol show nodes --json", "partitions": "scontrol show partitions --json",
		"reservations": "scontrol show reservations --json", "sinfo": "sinfo --json", "licenses": "scontrol show licenses --json",
	} {
		doc := s.runDocument(t, strings.Fields(argv)...)
		list, _ := doc[element].([]any)
		if len(list) == 0 {
			t.Errorf("%s: nothing in %q", argv, element)
		}
		for _, e := range list {
			followsSchema(t, element, e)
		}
		for _, name := range []string{"meta", "errors", "warnings"} {
			if doc[name] == nil {
				t.Errorf("%s: no %q", argv, name)
			}
		}
		if element != "sinfo" && kindOf(doc["last_update"]) != "n" {
			t.Errorf("%s: last_update is %v", argv, doc["last_update"])
		}
	}
}

// Steps that run are written as those of the accounting, in JSON and in YAML.
func TestStepsDocument(t *testing.T) {
	s := readScene(t, "facts.txt")
	var inYAML map[string]any
	if err := yaml.Unmarshal([]byte(s.mustRun(t, "scontrol", "show", "steps", "--yaml")), &inYAML); err != nil {
		t.Fatal(err)
	}
	inJSON, _ := s.runDocument(t, "scontrol", "show", "steps", "--json")["steps"].([]any)
	if list, _ := inYAML["steps"].([]any); len(inJSON) == 0 || len(list) != len(inJSON) {
		t.Errorf("%d steps in JSON, %d in YAML", len(inJSON), len(list))
	}
	for _, step := range inJSON {
		followsSchema(t, "accounting steps", step)
	}
}

// scontrol ping --json says how long the answer took, in microseconds.
func TestPingDocument(t *testing.T) {
	s, now := &scene{}, time.Unix(100, 0)
	var out bytes.Buffer
	e := &command.Env{Name: "scontrol", Stdout: &out, Stderr: &out, Environ: []string{"TZ=UTC"},
		Now:  func() time.Time { now = now.Add(250 * time.Microsecond); return now },
		Dial: func(context.Context) (*client.Client, error) { return &client.Client{ControllerAPIClient: s}, nil }}
	rc := scontrol.Main(e, []string{"ping", "--json"})
	var doc struct{ Pings []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || rc != 0 || len(doc.Pings) != 1 {
		t.Fatalf("%d, %v in\n%s", rc, err, out.String())
	}
	followsSchema(t, "pings", doc.Pings[0])
	if doc.Pings[0]["latency"] != 250.0 || doc.Pings[0]["hostname"] != "vm" || doc.Pings[0]["primary"] != true {
		t.Errorf("ping: %v", doc.Pings[0])
	}
}

// Lists of states and flags hold words of the schema alone: strict clients refuse others.
func TestDocumentWords(t *testing.T) {
	s := &scene{now: time.Unix(100, 0),
		resvs: []*msg.ReservationRecord{{Name: "r", PurgeCompS: 300, Flags: []string{"MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY",
			"DAILY",
			"WEEKDAY", "WEEKEND", "WEEKLY", "STATIC", "NO_HOLD_JOBS_AFTER", "ANY_NODES", "SPEC_NODES", "ALL_NODES", "PART_NODES",
			"FIRST_CORES", "TIME_FLOAT", "REPLACE",
			"REPLACE_DOWN", "PURGE_COMP", "MAGNETIC"}}}}
	for state := range msg.JobState_name {
		s.jobs = append(s.jobs, &msg.JobRecord{Id: uint32(state) + 1, State: msg.JobState(state), StateFlags: 1<<11 - 1,
			Dependency: "after:1", Scheduler: "Backfill",
			Spec: &msg.JobSpec{GresFlags: "disable-binding,enforce-binding", Spread: true, UseMinNodes: true, Cron: "* * * * *",
				KillOnInvalidDep: uint32(state) % 3}})
	}
	for state := range msg.NodeState_name {
		s.nodes = append(s.nodes, &msg.NodeRecord{Name: fmt.Sprint("n", state), State: msg.NodeState(state), StateFlags: ^uint32(0)})
	}
	words := schema(t)
	for list, argv := range map[string]string{"jobs flags": "squeue --all --states=all --json",
		"jobs job_state": "squeue --all --states=all --json",
		"nodes state":    "scontrol show nodes --json", "reservations flags": "scontrol show reservations --json"} {
		element, member, _ := strings.Cut(list, " ")
		elements, _ := s.runDocument(t, strings.Fields(argv)...)[element].([]any)
		if len(elements) == 0 {
			t.Errorf("%s: no %s", argv, element)
		}
		for _, e := range elements {
			for _, word := range e.(map[string]any)[member].([]any) {
				if words[list][word.(string)] != "w" {
					t.Errorf("%s: %s is not in the schema", list, word)
				}
			}
		}
	}
	r := s.runDocument(t, "scontrol", "show", "reservations", "--json")["reservations"].([]any)[0].(map[string]any)
	if got := r["flags"].([]any); len(got) != 19 || !slices.Contains(got, any("NO_HOLD_JOBS_AFTER_END")) ||
		!reflect.DeepEqual(r["purge_completed"], map[string]any{"time": map[string]any{"set": true, "infinite": false, "number": 300.0}}) {
		t.Errorf("flags %v, purge_completed %v", got, r["purge_completed"])
	}
	j := s.runDocument(t, "squeue", "--all", "--states=all", "--json")["jobs"].([]any)[0].(map[string]any)
	for _, flag := range []string{"GRES_BINDING_DISABLED", "GRES_BINDING_ENFORCED", "PREFER_MINIMUM_NODE_COUNT", "SPREAD_JOB"} {
		if !slices.Contains(j["flags"].([]any), any(flag)) {
			t.Errorf("no %s in %v", flag, j["flags"])
		}
	}
}

func TestDocumentHonoursFilters(t *testing.T) {
	s := readScene(t, "facts.txt")
	ids := func(words ...string) (list []float64) {
		for _, j := range s.runDocument(t, words...)["jobs"].([]any) {
			list = append(list, j.(map[string]any)["job_id"].(float64))
		}
		return list
	}
	if got := ids("squeue", "--json", "-j", "8"); !reflect.DeepEqual(got, []float64{8}) {
		t.Errorf("-j 8: %v", got)
	}
	if got := ids("scontrol", "show", "job", "8", "--json"); !reflect.DeepEqual(got, []float64{8}) {
		t.Errorf("show job 8: %v", got)
	}
	if got := ids("squeue", "--json", "-n", "nosuchname"); len(got) != 0 {
		t.Errorf("-n nosuchname: %v", got)
	}
	nodes := s.runDocument(t, "scontrol", "--json", "show", "node", "n1")["nodes"].([]any)
	if len(nodes) != 1 || nodes[0].(map[string]any)["name"] != "n1" {
		t.Errorf("show node n1: %v", nodes)
	}
	if rc, out, stderr := s.run([]string{"squeue", "--json", "-j", "999"}, nil); rc != 1 || out != "" ||
		stderr != "slurm_load_jobs error: Invalid job id specified\n" {
		t.Errorf("-j 999: %d, %q, %q", rc, out, stderr)
	}
}

// A job's document says the same as its table.
func TestJobDocument(t *testing.T) {
	r := &msg.JobRecord{Id: 7, State: msg.JobState_JOB_RUNNING, StateFlags: msg.JobConfiguring, StartNs: 5e9, TimeLimitS: 90,
		ExitStatus: 9, NodeList: "n1", NumCpus: 4,
		Alloc:     []*msg.NodeAlloc{{Node: "n1", Cpus: 4, CpuIds: "0-1", MemMib: 100, Gres: "gpu:a100:1(IDX:2)"}},
		AllocTres: "cpu=4,mem=100M,billing=4.5", Spec: &msg.JobSpec{Name: "a/b\x00", MailType: msg.MailEnd | msg.MailTime90,
			Switches: "2@1:00", Sharing: "user"}}
	s := &scene{now: time.Unix(100, 0), jobs: []*msg.JobRecord{r}}
	j := s.runDocument(t, "squeue", "--json=v0.0.42")["jobs"].([]any)[0].(map[string]any)
	for name, want := range map[string]string{
		"job_state": `["RUNNING","CONFIGURING"]`, "time_limit": `{"infinite":false,"number":2,"set":true}`, "name": `"a/b\u0000"`,
		"exit_code":     `{"return_code":{"infinite":false,"number":0,"set":true},"signal":{"id":{"infinite":false,"number":9,"set":true},"name":"KILL"},"status":["SIGNALED"]}`,
		"billable_tres": `{"infinite":false,"number":4.5,"set":true}`, "mail_type": `["END","TIME=90%"]`, "required_switches": "2",
		"maximum_switch_wait_time": "60",
		"gres_detail":              `["gpu:a100:1(IDX:2)"]`, "shared": `["user"]`, "end_time": `{"infinite":false,"number":95,"set":true}`,
	} {
		got, _ := json.Marshal(j[name])
		if string(got) != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

// The cores of a job stand where the node has them.
func TestCoresBySocket(t *testing.T) {
	s := &scene{now: time.Unix(100, 0), nodes: []*msg.NodeRecord{{Name: "n1", Sockets: 2, Cores: 2, Threads: 1, Cpus: 4}},
		jobs: []*msg.JobRecord{{Id: 7, State: msg.JobState_JOB_RUNNING,
			Alloc: []*msg.NodeAlloc{{Node: "n1", Cpus: 2, CpuIds: "1-2"}, {Node: "gone", CpuIds: "1"}, {Node: "n1"}},
			Spec:  &msg.JobSpec{}}}}
	j := s.runDocument(t, "squeue", "--json")["jobs"].([]any)[0].(map[string]any)
	var got []string
	for _, a := range j["job_resources"].(map[string]any)["nodes"].(map[string]any)["allocation"].([]any) {
		text := ""
		for _, socket := range a.(map[string]any)["sockets"].([]any) {
			for _, core := range socket.(map[string]any)["cores"].([]any) {
				text += core.(map[string]any)["status"].([]any)[0].(string)[:1]
			}
			text += "/"
		}
		got = append(got, text)
	}
	if want := []string{"UA/AU/", "UA/", "UU/UU/"}; !reflect.DeepEqual(got, want) {
		t.Errorf("cores %q, want %q", got, want)
	}
}

// YAML says what JSON says.
func TestYAMLDocument(t *testing.T) {
	s := readScene(t, "facts.txt")
	for _, argv := range []string{"squeue --states=all", "sinfo", "scontrol show nodes", "scontrol show partitions"} {
		var fromYAML, fromJSON any
		if err := yaml.Unmarshal([]byte(s.mustRun(t, strings.Fields(argv+" --yaml")...)), &fromYAML); err != nil {
			t.Fatalf("%s --yaml: %v", argv, err)
		}
		if err := json.Unmarshal([]byte(s.mustRun(t, strings.Fields(argv+" --json")...)), &fromJSON); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(fromYAML)
		_ = json.Unmarshal(a, &fromYAML) // numbers as JSON's reader has them
		a, _ = json.Marshal(fromYAML)
		b, _ := json.Marshal(fromJSON)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: YAML and JSON differ: %s", argv, difference(string(a), string(b)))
		}
	}
}

// broken is a scene whose stream of jobs ends in an error.
type broken struct {
	*scene
	pages int
}

type brokenPages struct {
	msg.Stream[msg.JobsReply]
	left int
}

func (p *brokenPages) RecvEncoded() (string, error) {
	if p.left--; p.left < 0 {
		return "", errors.New("the connection was cut")
	}
	return p.Stream.RecvEncoded()
}

func (b *broken) Jobs(ctx context.Context, r *msg.JobsRequest) (msg.Stream[msg.JobsReply], error) {
	stream, err := b.scene.Jobs(ctx, r)
	return &brokenPages{stream, b.pages}, err
}

// A controller that goes away in the middle leaves a whole document, which says so; one that never answers leaves none.
func TestDocumentOfABrokenStream(t *testing.T) {
	s := &scene{now: time.Unix(100, 0)}
	for id := range uint32(200) {
		s.jobs = append(s.jobs, &msg.JobRecord{Id: id + 1, Spec: &msg.JobSpec{Comment: strings.Repeat("c", 1000)}})
	}
	run := func(pages int) (rc int, stdout, stderr string) {
		var out, errs bytes.Buffer
		e := &command.Env{Name: "squeue", Stdout: &out, Stderr: &errs, Now: func() time.Time { return s.now },
			Dial: func(context.Context) (*client.Client, error) {
				return &client.Client{ControllerAPIClient: &broken{s, pages}}, nil
			}}
		rc = squeue.Main(e, []string{"--json"})
		return rc, out.String(), errs.String()
	}
	rc, out, _ := run(100)
	var doc struct {
		Jobs   []any
		Errors []struct{ Error string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || rc != 1 || len(doc.Jobs) != 100 || len(doc.Errors) != 1 ||
		!strings.Contains(doc.Errors[0].Error, "cut") {
		t.Errorf("after 100 jobs: %d, %v, %d jobs, errors %v", rc, err, len(doc.Jobs), doc.Errors)
	}
	if rc, out, stderr := run(0); rc != 1 || out != "" || !strings.Contains(stderr, "slurm_load_jobs error: the connection was cut") {
		t.Errorf("at once: %d, %q, %q", rc, out, stderr)
	}
}

func TestDocumentParsers(t *testing.T) {
	s := readScene(t, "facts.txt")
	if rc, out, _ := s.run([]string{"sinfo", "--json=list"}, nil); rc != 0 ||
		out != "Possible data_parser plugins:\ndata_parser/v0.0.42\n" {
		t.Errorf("list: %d, %q", rc, out)
	}
	if rc, out, stderr := s.run([]string{"squeue", "--json=v0.0.39"}, nil); rc != 1 || out != "" || !strings.Contains(stderr, "v0.0.42") {
		t.Errorf("v0.0.39: %d, %q, %q", rc, out, stderr)
	}
	rc, out, _ := s.run([]string{"squeue", "--json"}, map[string]string{"SLURM_JSON": "compact"})
	if rc != 0 || strings.Contains(out, "\n ") || !json.Valid([]byte(out)) {
		t.Errorf("compact: %d, %.80q", rc, out)
	}
}

func BenchmarkJobsDocument(b *testing.B) {
	s := readScene(b, "facts.txt")
	var jobs []format.Job
	for _, j := range s.jobs {
		jobs = append(jobs, format.Job{JobRecord: j})
	}
	e := &command.Env{Name: "squeue", Stdout: discard{}, Now: func() time.Time { return s.now },
		Dial: func(context.Context) (*client.Client, error) { return nil, nil }}
	fc := &format.Context{Now: s.now}
	for b.Loop() {
		out := view.NewDocument(e, view.DocumentKind{Wanted: true}, "jobs")
		out.Begin()
		for i := range 10_000 {
			doc.WriteJob(out.Writer, fc, jobs[i%len(jobs)])
		}
		out.End()
		_ = out.Close()
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
