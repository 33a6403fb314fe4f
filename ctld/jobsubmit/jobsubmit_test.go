package jobsubmit

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMain is a worker when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "worker" {
		os.Exit(Worker(os.Args[2]))
	}
	os.Exit(m.Run())
}

func plugin(t *testing.T, script string) *Plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job_submit.lua")
	if !strings.Contains(script, "slurm_job_modify") {
		script += "\nfunction slurm_job_modify() return 0 end\n"
	}
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := New(path, []string{os.Args[0], "worker"}, 2, noTurns, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	p.SetMessageTimeout(1200) // a busy machine is no fault
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

func noTurns(context.Context) (func(), error) { return func() {}, nil }

func view() *state.View {
	return state.New(&state.Config{Settings: &state.Settings{Cluster: "test"},
		Partitions: []*pb.PartitionRecord{{Name: "debug", State: "UP", IsDefault: true, MaxTimeS: 3600}}}, "c", 1)
}

// TestFieldsComeBack: each field that can be written arrives in the specification as Lua has written it, and is read back as that.
func TestFieldsComeBack(t *testing.T) {
	for _, name := range sortedKeys(fields) {
		f := fields[name]
		if f.set == nil {
			continue
		}
		var s pb.JobSpec
		unset := f.get(&s)
		for _, v := range []any{unset, 1.0, "debug"} {
			if _, number := v.(float64); v != nil && !number && f.set(&s, v) != nil {
				continue // a number is wanted
			}
			s = pb.JobSpec{}
			if err := f.set(&s, v); err != nil {
				t.Errorf("%s = %v: %v", name, v, err)
				continue
			}
			if got := f.get(&s); got != v && !(v == 1.0 && got == "1") {
				t.Errorf("%s: %v was written, %v is read", name, v, got)
			}
		}
	}
}

func TestSubmit(t *testing.T) {
	p := plugin(t, `function slurm_job_submit(d, parts, uid)
	  assert(d.time_limit == slurm.NO_VAL and d.min_mem_per_cpu == 50 and d.qos == nil and d.script == "#!/bin/sh")
	  assert(parts.debug.max_time == 60 and parts.debug.flag_default == 1 and slurm.CLUSTER_NAME == "test")
	  assert(slurm.time_str2mins("1-00:00:00") == 1440)
	  d.time_limit = 5; d.comment = nil; d.nice = slurm.NICE_OFFSET + 7; d.environment.GONE = nil; d.environment.NEW = "1"; d.features = "a&b"
	  slurm.log_user("uid %u", uid)
	  return slurm.SUCCESS
	end`)
	r := &pb.SubmitRequest{Spec: &pb.JobSpec{Uid: 7, Comment: "c", MemPerCpuMib: 50}, Script: []byte("#!/bin/sh"),
		Env: []string{"GONE=1", "STAYS=a=b"}}
	said, problem := p.Submit(t.Context(), view(), r)
	if problem != nil || strings.Join(said, ";") != "uid 7" {
		t.Fatal(said, problem)
	}
	if s := r.Spec; s.TimeLimitS != 300 || s.Comment != "" || s.Nice != 7 || s.Features != "a&b" || s.MemPerCpuMib != 50 {
		t.Errorf("%v", s)
	}
	if got := strings.Join(r.Env, ";"); got != "STAYS=a=b;NEW=1" {
		t.Errorf("environment %s", got)
	}
}

// TestReturnCodes: the number of a Slurm error gives Slurm's text; a return value that is not a number is success, as in Slurm.
func TestReturnCodes(t *testing.T) {
	for code, want := range map[string]pb.Code{"slurm.ERROR": pb.CodeSubmitPlugin,
		"slurm.ESLURM_INVALID_TIME_LIMIT": pb.CodeInvalidTimeLimit, "12345": pb.CodeSubmitPlugin, "nil": 0, "'x'": 0} {
		p := plugin(t, "function slurm_job_submit(d) return "+code+" end")
		_, problem := p.Submit(t.Context(), view(), &pb.SubmitRequest{Spec: &pb.JobSpec{}})
		if got := pb.Code(problem.GetCode()); got != want {
			t.Errorf("%s: %v", code, problem)
		}
	}
}

// TestWorkerDies: a script that ends its process is answered by a refusal, and the next call by a new process.
func TestWorkerDies(t *testing.T) {
	p := plugin(t, `function slurm_job_submit(d) if d.name == "die" then os.exit(3) end return 0 end`)
	for _, name := range []string{"die", "live", "die", "live"} {
		_, problem := p.Submit(t.Context(), view(), &pb.SubmitRequest{Spec: &pb.JobSpec{Name: name}})
		if (problem != nil) != (name == "die") {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

// TestSlowCalls do not hold up others, and are ended.
func TestSlowCalls(t *testing.T) {
	dir := t.TempDir()
	p := plugin(t, `function slurm_job_submit(d)
	  if d.name == "slow" then
	    io.open("`+dir+`/begun", "w"):close()
	    repeat local f = io.open("`+dir+`/go"); if f then f:close() end until f
	  end
	  while d.name == "endless" do end
	  return 0 end`)
	submit := func(name string) *pb.Problem {
		_, problem := p.Submit(t.Context(), view(), &pb.SubmitRequest{Spec: &pb.JobSpec{Name: name}})
		return problem
	}
	slow := make(chan *pb.Problem)
	go func() { slow <- submit("slow") }()
	for begun := false; !begun; {
		_, err := os.Stat(filepath.Join(dir, "begun"))
		begun = err == nil
	}
	for range 3 {
		if problem := submit("quick"); problem != nil {
			t.Error(problem)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if problem := <-slow; problem != nil {
		t.Error(problem)
	}
	p.SetMessageTimeout(1)
	if problem := submit("endless"); problem == nil || !strings.Contains(problem.Error(), "it took longer than 1s") {
		t.Errorf("an endless script: %v", problem)
	}
}

// TestLargestSubmission fits through the pipe, with texts that JSON has to escape.
func TestLargestSubmission(t *testing.T) {
	p := plugin(t, `function slurm_job_submit(d) d.comment = tostring(#d.script) return 0 end`)
	script := strings.Repeat("\x01<&\u2028", 1<<19)
	r := &pb.SubmitRequest{Spec: &pb.JobSpec{}, Script: []byte(script)}
	if _, problem := p.Submit(t.Context(), view(), r); problem != nil || string(r.Script) != script {
		t.Errorf("%v; the script has changed: %v", problem, string(r.Script) != script)
	}
}

// A site's bounds hold for every name that a field has, for increments, and for each job of an update.
func TestModifyCannotBeWalkedAround(t *testing.T) {
	p := plugin(t, `function slurm_job_submit() return 0 end
function slurm_job_modify(desc, rec)
  if desc.gres == "gpu:8" or desc.time_limit == 90 or desc.tres_per_job == "gres/gpu:8" then return slurm.ERROR end
  if desc.begin_time == 1900000000 or desc.deadline == 1900000000 then return slurm.ERROR end
  if rec.job_id == 2 then return slurm.ERROR end
  return slurm.SUCCESS
end`)
	v := state.New(&state.Config{Settings: &state.Settings{Cluster: "c"}}, "c", 1)
	tx := state.Begin(v, 1)
	for id := range uint32(2) {
		tx.Emit(state.JobSubmitted{Job: &pb.JobRecord{Id: id + 1, Spec: &pb.JobSpec{Name: "j"}, TimeLimitS: 1800}})
	}
	v = tx.View()
	for _, tt := range []struct {
		ids        []string
		key, value string
		ok         bool
	}{
		{[]string{"1"}, "Gres", "gpu:8", false}, {[]string{"1"}, "TresPerNode", "gpu:8", false},
		{[]string{"1"}, "TresPerJob", "gres/gpu:8", false},
		{[]string{"1"}, "TimeLimit+", "60", false}, {[]string{"1"}, "TimeLimit+", "30", true}, {[]string{"1"}, "TimeLimit-", "10", true},
		{[]string{"1", "2"}, "TimeLimit+", "30", false}, {[]string{"1"}, "Comment", "x", true}, {[]string{"1", "2"}, "Comment", "x", false},
		{[]string{"1"}, "StartTime", "1900000000", false}, {[]string{"1"}, "Deadline", "1900000000", false},
	} {
		_, problem := p.Modify(t.Context(), v, 1000, tt.ids, []*pb.KeyValue{{Key: tt.key, Value: tt.value}})
		if (problem == nil) != tt.ok {
			t.Errorf("%v %s=%s: %v", tt.ids, tt.key, tt.value, problem)
		}
	}
}

func TestModify(t *testing.T) {
	p := plugin(t, `function slurm_job_submit() return 0 end`)
	set := []*pb.KeyValue{{Key: "TimeLimit", Value: "1:00:00"}, {Key: "Nice", Value: "-5"}, {Key: "Shared", Value: "yes"}}
	got, problem := p.Modify(t.Context(), view(), 0, []string{"1"}, set)
	a, _ := json.Marshal(set)
	if b, _ := json.Marshal(got); problem != nil || string(a) != string(b) {
		t.Errorf("%s became %s (%v)", a, b, problem)
	}
}
