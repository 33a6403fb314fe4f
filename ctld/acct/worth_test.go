package acct

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func everybody(uint32) bool { return true }

func notRunning(*pb.JobRecord) []*pb.StepUsage { return nil }

// TestWorth: the time held, used and waited for in a window; a job that reaches beyond the window counts with its part inside. GPU time
// without a figure from the driver counts as neither used nor idle.
func TestWorth(t *testing.T) {
	const hour = int64(time.Hour)
	w := &worths{q: &WorthQuery{Since: 10 * hour, Until: 20 * hour, By: "user", Sees: everybody, Live: notRunning},
		v: state.New(config(), "c", 1), now: 20 * hour, rows: map[worthKey]*worth{}}
	job := func(id, uid uint32, eligible, start, end int64, util ...int64) *pb.JobRecord {
		j := &pb.JobRecord{Id: id, Spec: &pb.JobSpec{Uid: uid}, Partition: "debug", State: pb.JobState_JOB_COMPLETED, EligibleNs: eligible,
			StartNs: start, EndNs: end, ReqTres: "cpu=2,gres/gpu=2", BatchHost: "n1"}
		a := &pb.NodeAlloc{Node: "n1", Cpus: 2, MemMib: 100}
		u := &pb.StepUsage{Node: "n1", CpuUsecUser: uint64(end-start) / 1000, MaxRssKib: 25 << 10}
		for i, percent := range util {
			id := string(rune('A' + i))
			a.Devices = append(a.Devices, &pb.GresDevice{Name: "gpu", Id: id})
			u.Devices = append(u.Devices, &pb.DeviceUse{Id: id, UtilPercent: percent, EnergyMj: 3_600_000, Samples: 9})
		}
		j.Alloc, j.Usage = []*pb.NodeAlloc{a}, []*pb.StepUsage{u}
		return j
	}
	w.count(job(1, 7, 8*hour, 9*hour, 11*hour, 50, -1))   // one hour of two
	w.count(job(2, 7, 12*hour, 15*hour, 17*hour, 100, 0)) // waited three hours
	w.count(job(3, 7, 13*hour, 14*hour, 15*hour))         // without GPUs
	waiting := job(4, 7, 19*hour, 0, 0)
	waiting.State, waiting.Alloc, waiting.Usage = pb.JobState_JOB_PENDING, nil, nil
	w.count(waiting)
	long := job(6, 9, 5*hour, 0, 0) // an array, waiting
	long.State, long.Alloc, long.Usage, long.ArrayJobId, long.ArrayTasks = pb.JobState_JOB_PENDING, nil, nil, 6, "1-9"
	w.count(long)
	short := job(7, 9, 12*hour, 13*hour, 14*hour)
	w.count(short)
	other := job(5, 8, 12*hour, 13*hour, 14*hour, 10, 10)
	other.Spec.Account = "physics"
	w.count(other)
	rows := w.sorted()
	if len(rows) != 3 || rows[0].Uid != 7 || rows[1].Account != "physics" {
		t.Fatalf("%v", rows)
	}
	if x := rows[2]; x.Uid != 9 || x.Started != 1 || x.WaitMedianS != 15*3600 || x.WaitP90S != 15*3600 {
		t.Errorf("nine that wait for 15 hours beside one that waited for one: %v", x)
	}
	rows = rows[:2]
	r := rows[0]
	h := float64(3600)
	for _, f := range []struct {
		name      string
		got, want float64
	}{
		{"jobs", float64(r.Jobs), 4}, {"held", r.GpuS, (2 + 4) * h}, {"used", r.GpuUsedS, (0.5 + 2) * h},
		{"idle", r.GpuIdleS, (0.5 + 2) * h},
		{"waited", r.GpuWaitedS, (3*2 + 1*2 + 1*2) * h}, {"started", float64(r.Started), 2}, {"median", r.WaitMedianS, h},
		{"p90", r.WaitP90S, 3 * h}, {"cpu", r.CpuS, (2 + 4 + 2) * h}, {"cpu used", r.CpuUsedS, (1 + 2 + 1) * h},
		{"memory", r.MemUsedS / r.MemKnownS, 0.25}, {"energy", r.EnergyJ, 3600 + 7200},
	} {
		if math.Abs(f.got-f.want) > 1e-6 {
			t.Errorf("%s: %g, want %g", f.name, f.got, f.want)
		}
	}
	lost := []gpuhours.LostHour{{Loss: gpuhours.Loss{UID: 7, Account: "root", Partition: "debug"},
		Lost: gpuhours.Lost{GPUs: 30, Beside: 10}},
		{Loss: gpuhours.Loss{UID: 9, Account: "root", Partition: "debug"}, Lost: gpuhours.Lost{GPUs: 5}}}
	rows = w.q.Lose(rows, lost)
	if len(rows) != 3 || rows[0].GpuLostS != 30 || rows[0].GpuLostBesideS != 10 || rows[2].Uid != 9 || rows[2].GpuLostS != 5 {
		t.Errorf("with what was lost: %v", rows)
	}
	w.q.Sees = func(uid uint32) bool { return uid == 8 }
	if rows := w.q.Lose(nil, lost); len(rows) != 0 {
		t.Errorf("somebody else sees %v", rows)
	}
}

// TestWorthSelects: the query reaches attempts in the state and in the database, of the users that the caller may see.
func TestWorthSelects(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	a, b := w.submit(1), w.submit(2)
	w.begin(a)
	w.begin(b)
	w.now = w.now.Add(time.Hour)
	q := &WorthQuery{Until: w.now.UnixNano(), By: "account", Sees: everybody, Live: notRunning}
	sum := func() (cpus float64, jobs uint64) {
		rows, err := w.a.Worth(t.Context(), q, w.loop.View)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			cpus, jobs = cpus+r.CpuS, jobs+r.Jobs
		}
		return cpus, jobs
	}
	if cpus, jobs := sum(); cpus == 0 || jobs != 2 {
		t.Errorf("all: %g CPU seconds of %d jobs", cpus, jobs)
	}
	q.Sees = func(uid uint32) bool { return uid == 1 }
	if _, jobs := sum(); jobs != 1 {
		t.Errorf("one's own: %d jobs", jobs)
	}
	q.Sees, q.Accounts = everybody, []string{"A0"}
	if _, jobs := sum(); jobs != 1 {
		t.Errorf("of an account: %d jobs", jobs)
	}
	q.Accounts, q.Partitions = nil, []string{"other"}
	if _, jobs := sum(); jobs != 0 {
		t.Errorf("of another partition: %d jobs", jobs)
	}
}

// TestGPUHours: hours are added to what is stored, survive kill -9, and are deleted with PurgeJobAfter.
func TestGPUHours(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	start := w.now.Unix() / 3600 * 3600
	put := func() {
		t.Helper()
		hour := gpuhours.Hour{Start: start, Covered: 60,
			Sums: gpuhours.Sums{Total: 480, Used: 100, Idle: 20, Free: 360, Asked: 300, Lost: 200}}
		err := w.a.AddHours(t.Context(), []gpuhours.Hour{hour, {Start: start, Partition: "debug", Covered: 60}},
			[]gpuhours.LostHour{{Start: start, Loss: gpuhours.Loss{UID: 7, Account: "root", Partition: "debug"},
				Lost: gpuhours.Lost{GPUs: 200, Beside: 50}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	put()
	w.crash()
	put()
	hours, err := w.a.Hours(t.Context(), start, start+3600, "")
	if err != nil || len(hours) != 1 || hours[0].Covered != 120 || hours[0].Total != 960 || hours[0].Lost != 400 {
		t.Fatalf("%+v, %v", hours, err)
	}
	losses, err := w.a.Losses(t.Context(), start, start+3600)
	if err != nil || len(losses) != 1 || losses[0].GPUs != 400 || losses[0].Beside != 100 || losses[0].UID != 7 {
		t.Fatalf("%+v, %v", losses, err)
	}
	w.pol.Keep = 24 * time.Hour
	for _, want := range []int{1, 0} {
		w.a.purge(t.Context())
		if hours, err := w.a.Hours(t.Context(), 0, math.MaxInt64, ""); err != nil || len(hours) != want {
			t.Errorf("%d hours are left, want %d, %v", len(hours), want, err)
		}
		w.now = w.now.Add(30 * time.Hour)
	}
}
