package acct

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Made-up history: users submit in turn, one job after the other, over a year. One of them is nobody, whom every machine knows: a real
// sacct asks for no others.
const (
	benchUsers = 100
	benchSpan  = 365 * 24 * time.Hour
	nobody     = 65534
)

var benchBegin = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// benchJob is job i of n, as a controller stores one that has ended.
func benchJob(i, n int) *pb.JobRecord {
	submit := benchBegin.Add(benchSpan / time.Duration(n) * time.Duration(i)).UnixNano()
	id, uid := uint32(i+1), uint32(1000+i%benchUsers)
	user := "user" + strconv.Itoa(int(uid))
	if i%benchUsers == 42 {
		uid, user = nobody, "nobody"
	}
	j := &pb.JobRecord{Id: id, State: pb.JobState_JOB_COMPLETED, Reason: "None", Partition: "gpu", Priority: 4294901760 - id, Attempt: 1,
		SubmitNs: submit, EligibleNs: submit,
		AccrueNs: submit, StartNs: submit + 60e9, EndNs: submit + 3660e9, TimeLimitS: 7200, NodeList: "gpu12", BatchHost: "gpu12",
		NumNodes: 1, NumCpus: 8, NumTasks: 1,
		ReqTres: "cpu=8,mem=64G,node=1,billing=8,gres/gpu=1", AllocTres: "cpu=8,mem=64G,node=1,billing=8,gres/gpu=1,gres/gpu:a100=1",
		Scheduler: "Backfill",
		MaxRssKib: 9000000, BatchStartNs: submit + 60e9, BatchEndNs: submit + 3660e9, BatchVerdict: "exited",
		Alloc: []*pb.NodeAlloc{{Node: "gpu12", Cpus: 8, CpuIds: "0-7", MemMib: 65536, Gres: "gpu:a100:1(IDX:3)", Ended: true,
			Devices: []*pb.GresDevice{{Name: "gpu", Type: "a100", Index: 3, Id: "GPU-8d4a2f6c-3b1e-4f5a-9c7d-0123456789ab"}}}},
		Usage: []*pb.StepUsage{{Node: "gpu12", CpuUsecUser: 7e9, CpuUsecSystem: 1e8, MaxRssKib: 9000000, MaxVmKib: 20000000,
			ReadBytes: 1e10, WriteBytes: 1e9, PageFaults: 12,
			Devices: []*pb.DeviceUse{{Id: "GPU-8d4a2f6c-3b1e-4f5a-9c7d-0123456789ab", Index: 3, UtilPercent: 61, MaxUtilPercent: 100,
				MaxMemoryMib: 38000, EnergyMj: 9e8, Samples: 360}}}},
		Spec: &pb.JobSpec{Name: "train-" + strconv.Itoa(i%1000), Uid: uid, Gid: 100, User: user, Group: "users", Partition: "gpu",
			Account: "lab" + strconv.Itoa(i%7),
			WorkDir: "/home/user/projects/vision", Command: "/home/user/projects/vision/train.sh", Args: []string{"--lr", "0.1"},
			StdOut: "logs/%j.out", SubmitLine: "sbatch --gres=gpu:1 train.sh --lr 0.1",
			CpusPerTask: 8, MemPerNodeMib: 65536, TresPerNode: "gres/gpu:1"}}
	if i/benchUsers%10 == 0 {
		j.State, j.ExitStatus = pb.JobState_JOB_FAILED, 1<<8
	}
	return j
}

// benchCluster is the id of the cluster that the database in dir belongs to, of any when there is none.
func benchCluster(b testing.TB, dir string) string {
	b.Helper()
	if _, err := os.Stat(filepath.Join(dir, File)); err != nil {
		return "c"
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, File)+"?mode=ro")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var id string
	if err := db.QueryRow("SELECT value FROM meta WHERE name = 'cluster'").Scan(&id); err != nil {
		b.Fatal(err)
	}
	return id
}

// fill stores n jobs through the writer: as attempts of the outbox, which costs it what a job of the state costs.
func fill(b testing.TB, dir string, n int) *Accounting {
	b.Helper()
	v := state.New(config(), "c", 1)
	a := New(Options{Dir: dir, Cluster: benchCluster(b, dir), Log: slog.New(slog.DiscardHandler), Policy: func() Policy { return Policy{} },
		Outbox: func(at state.Attempt) ([]byte, error) { return proto.Marshal(benchJob(int(at.Job)-1, n)) },
		Stored: func(context.Context, reactor.Stored) error { return nil },
		Now:    func() time.Time { return benchBegin.Add(benchSpan) }}, v)
	a.Open()
	const chunk = 20000
	for from := 0; from < n; from += chunk {
		var kept []state.Attempt
		for i := from; i < min(from+chunk, n); i++ {
			kept = append(kept, state.Attempt{Job: uint32(i + 1)})
		}
		a.Changed(state.Change{View: v, Kept: kept})
		if err := a.store(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	return a
}

// benchHistory is how many jobs the benchmarks are about, and where their database is: SLUICE_ACCT_JOBS, SLUICE_ACCT_DIR. A database that
// is there already, of a cluster that does not run, is added to.
func benchHistory(b *testing.B) (n int, dir string) {
	n, dir = 100000, os.Getenv("SLUICE_ACCT_DIR")
	if v, err := strconv.Atoi(os.Getenv("SLUICE_ACCT_JOBS")); err == nil && v > 0 {
		n = v
	}
	if dir == "" {
		dir = b.TempDir()
	}
	return n, dir
}

// BenchmarkFill stores the jobs; .ci/accounting makes a cluster with a long history by it.
func BenchmarkFill(b *testing.B) {
	n, dir := benchHistory(b)
	for b.Loop() {
		fill(b, dir, n).shut()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	if fi, err := os.Stat(filepath.Join(dir, File)); err == nil {
		b.ReportMetric(float64(fi.Size())/float64(n), "bytes/job")
	}
}

// BenchmarkSelect is sacct's part of the controller.
func BenchmarkSelect(b *testing.B) {
	n, dir := benchHistory(b)
	a := fill(b, dir, n)
	defer a.shut()
	day := func(d int) int64 { return benchBegin.Add(time.Duration(d) * 24 * time.Hour).UnixNano() }
	for _, q := range []struct {
		name string
		r    *pb.AccountingRequest
	}{
		{"user and week", &pb.AccountingRequest{Uids: []uint32{nobody}, SinceNs: day(200), UntilNs: day(207)}},
		{"user and last week", &pb.AccountingRequest{Uids: []uint32{nobody}, SinceNs: day(358)}},
		{"user and year", &pb.AccountingRequest{Uids: []uint32{nobody}, SinceNs: 1}},
		{"user, failed, month", &pb.AccountingRequest{Uids: []uint32{nobody}, States: []pb.JobState{pb.JobState_JOB_FAILED},
			SinceNs: day(100), UntilNs: day(130)}},
		{"all and day", &pb.AccountingRequest{SinceNs: day(300), UntilNs: day(301)}},
		{"name and week", &pb.AccountingRequest{Names: []string{"train-7"}, SinceNs: day(350)}},
		{"three ids", &pb.AccountingRequest{Ids: []string{"7", "500", strconv.Itoa(n / 2)}}},
		{"everything", &pb.AccountingRequest{SinceNs: 1}},
	} {
		b.Run(q.name, func(b *testing.B) {
			rows := 0
			v := state.New(config(), "c", 1)
			for b.Loop() {
				rows = 0
				if err := a.Select(context.Background(), q.r, func() *state.View { return v },
					func([]byte) error { rows++; return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows), "rows")
		})
	}
}

// BenchmarkFillArray stores 10,000 tasks of arrays of 500 with script and environment (AccountingStoreFlags=job_script,job_env).
func BenchmarkFillArray(b *testing.B) {
	const tasks, size = 10000, 500
	script := bytes.Repeat([]byte("echo a line of a script\n"), 100)
	env := []byte(strings.Repeat("A_VARIABLE=/and/its/value:/and/more\n", 60))
	var kept []state.Attempt
	for i := range tasks {
		kept = append(kept, state.Attempt{Job: uint32(i + 1)})
	}
	for b.Loop() {
		v := state.New(config(), "c", 1)
		a := New(Options{Dir: b.TempDir(), Cluster: "c", Log: slog.New(slog.DiscardHandler),
			Policy: func() Policy { return Policy{Scripts: true, Env: true} },
			Outbox: func(at state.Attempt) ([]byte, error) {
				j := benchJob(int(at.Job)-1, tasks)
				j.ArrayJobId, j.IsArrayTask, j.ArrayTaskId = (at.Job-1)/size*size+1, true, at.Job%size
				return proto.Marshal(j)
			},
			Script: func(*pb.JobRecord) ([]byte, []byte, error) { return slices.Clone(script), slices.Clone(env), nil },
			Stored: func(context.Context, reactor.Stored) error { return nil },
			Now:    func() time.Time { return benchBegin.Add(benchSpan) }}, v)
		a.Open()
		a.Changed(state.Change{View: v, Kept: kept})
		if err := a.store(context.Background()); err != nil {
			b.Fatal(err)
		}
		a.shut()
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used.Utime.Nano()+used.Stime.Nano())/float64(b.N*tasks), "cpu-ns/task") // of the whole process
}

// BenchmarkEncode measures the writer's work for a job before SQL.
func BenchmarkEncode(b *testing.B) {
	j := benchJob(1, 1000)
	for b.Loop() {
		if _, err := rowOf(j); err != nil {
			b.Fatal(err)
		}
	}
}

// A query by user, time or id must not look at every job, and what chooses them is in the index.
func TestSelectIsIndexed(t *testing.T) {
	dir, err := os.MkdirTemp(memory(), "acct")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	a := fill(t, dir, 2000)
	defer a.shut()
	for _, r := range []*pb.AccountingRequest{{Uids: []uint32{nobody}, SinceNs: benchBegin.UnixNano()}, {SinceNs: benchBegin.UnixNano()},
		{Ids: []string{"7"}},
		{Uids: []uint32{1}, States: []pb.JobState{pb.JobState_JOB_FAILED}, SinceNs: 1}} {
		q, _ := newSelection(r, time.Now().UnixNano())
		for _, p := range q.parts() {
			text, args, err := q.query(p)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := a.db.Load().read.Query("EXPLAIN QUERY PLAN "+text, args...)
			if err != nil {
				t.Fatal(err)
			}
			plan := ""
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				plan += fmt.Sprintln(detail)
				if strings.HasPrefix(detail, "SCAN jobs") || strings.Contains(detail, "USING INDEX") {
					t.Errorf("%v is answered by %q", r, detail)
				}
			}
			_ = rows.Close()
			t.Log(plan)
		}
	}
}
