package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/explain"
	"github.com/sluice-hpc/sluice/conf/timespec"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// recordedPriorities is the queue of which testdata/sprio_answers.txt tells: three jobs of four nodes in debug, one of them an array;
// one of two in high; one of two with --nice=10 that may run in debug or long.
func recordedPriorities(req *pb.PrioritiesRequest) *pb.PrioritiesReply {
	reply := &pb.PrioritiesReply{Weights: map[string]float64{"site": 1, "age": 1000, "fairshare": 1000, "jobsize": 100, "partition": 1000,
		"qos": 1000}}
	f := req.GetFilter()
	for _, r := range []struct {
		id         uint32
		part       string
		size, prio float64
		nice       int32
		total      float64
	}{{122, "debug", 0.3958333, 0.1, 0, 139.58333}, {124, "debug", 0.3958333, 0.1, 0, 139.58333},
		{125, "high", 0.1979167, 1, 0, 1019.79167},
		{126, "debug", 0.1979167, 0.1, 10, 109.791665}, {126, "long", 0.1979167, 0.1, 10, 109.791665},
		{127, "debug", 0.3958333, 0.1, 0, 139.58333}} {
		if len(f.GetPartitions()) > 0 && !slices.Contains(f.GetPartitions(), r.part) || len(f.GetUids()) > 0 &&
			!slices.Contains(f.GetUids(), 0) {
			continue
		}
		reply.Jobs = append(reply.Jobs, &pb.PriorityRecord{JobId: r.id, User: "root", Partition: r.part, Nice: r.nice, Priority: r.total,
			JobSize: r.size * 100, JobSizeNorm: r.size, PartitionPart: r.prio * 1000, PartitionNorm: r.prio})
	}
	return reply
}

func TestSprioElse(t *testing.T) {
	none := &clienttest.Controller{PrioritiesOf: func(req *pb.PrioritiesRequest) *pb.PrioritiesReply {
		if ids := req.GetFilter().GetIds(); !slices.Equal(ids, []string{"12", "13"}) {
			t.Errorf("asked for %v", ids)
		}
		return &pb.PrioritiesReply{}
	}}
	if stdout, _, exit := run(t, none, "", nil, "sprio", "-j", "12_3,13"); exit != 0 ||
		stdout != "Unable to find jobs matching user/id(s) specified\n" {
		t.Errorf("unknown jobs: exit %d, %q", exit, stdout)
	}
	basic := &clienttest.Controller{PrioritiesOf: func(*pb.PrioritiesRequest) *pb.PrioritiesReply {
		return &pb.PrioritiesReply{Weights: map[string]float64{"basic": 1}}
	}}
	if _, stderr, exit := run(t, basic, "", nil, "sprio"); exit != 1 ||
		stderr != "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.\n" {
		t.Errorf("priority/basic: exit %d, %q", exit, stderr)
	}
	few := &clienttest.Controller{PrioritiesOf: func(*pb.PrioritiesRequest) *pb.PrioritiesReply {
		return &pb.PrioritiesReply{Weights: map[string]float64{"site": 1, "jobsize": 100, "partition": 1000, "cpu": 50},
			Jobs: []*pb.PriorityRecord{{JobId: 181, User: "root", Partition: "debug", Priority: 139.6, JobSize: 39.58, PartitionPart: 100,
				Tres: "cpu=25"}}}
	}}
	want := "          JOBID PARTITION   PRIORITY       SITE    JOBSIZE  PARTITION TRES                \n" +
		"            181 debug            139          0         40        100 cpu=25              \n"
	if stdout, _, _ := run(t, few, "", nil, "sprio"); stdout != want {
		t.Errorf("terms without a weight are left out:\n%swant\n%s", stdout, want)
	}
	if stdout, _, _ := run(t, few, "", []string{"SPRIO_FORMAT=%i:%Y"}, "sprio", "-h"); stdout != "181:139\n" {
		t.Errorf("SPRIO_FORMAT: %q", stdout)
	}
	refused := &clienttest.Controller{Fail: pb.NewProblem(pb.CodeAccessDenied, "no")}
	if _, stderr, exit := run(t, refused, "", nil, "sprio"); exit != 255 ||
		!strings.HasPrefix(stderr, "Couldn't get priority factors from controller: Access/permission denied\n") {
		t.Errorf("refused: exit %d, %q", exit, stderr)
	}
}

func resvAt(hour, min int) int64 {
	return time.Date(2026, 11, 20, hour, min, 0, 0, time.Local).UnixNano()
}

// shownReservations are those of which the answers below are a real Slurm's.
func shownReservations() *clienttest.Controller {
	return &clienttest.Controller{ResvList: &pb.ReservationsReply{NowNs: resvAt(17, 30), Reservations: []*pb.ReservationRecord{
		{Name: "a", StartNs: resvAt(16, 35), EndNs: resvAt(17, 45), Nodes: "n1", NodeCount: 1, CoreCount: 4,
			Flags: []string{"MAINT", "SPEC_NODES"}, Tres: "cpu=4", Users: "root,nobody"},
		{Name: "lic", StartNs: resvAt(17, 36), EndNs: resvAt(18, 36) + 86400e9, Flags: []string{"ANY_NODES"}, Accounts: "foo",
			Licenses: "matlab:2", MaxStartDelayS: 300},
	}}, LicenseList: []*pb.LicenseRecord{{Name: "matlab", Total: 10, Used: 4, Reserved: 3}, {Name: "ansys", Total: 2}}}
}

func TestShowReservations(t *testing.T) {
	const a = `ReservationName=a StartTime=2026-11-20T16:35:00 EndTime=2026-11-20T17:45:00 Duration=01:10:00
   Nodes=n1 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=4
   Users=root,nobody Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

`
	const lic = `ReservationName=lic StartTime=2026-11-20T17:36:00 EndTime=2026-11-21T18:36:00 Duration=1-01:00:00
   Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=ANY_NODES
   TRES=(null)
   Users=(null) Groups=(null) Accounts=foo Licenses=matlab:2 State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=00:05:00

`
	for line, want := range map[string]string{
		"scontrol show reservation":         a + lic,
		"scontrol show res a":               a,
		"scontrol show ReservationName=lic": lic,
		"scontrol -o show res a":            strings.ReplaceAll(strings.TrimSuffix(a, "\n\n"), "\n   ", " ") + "\n",
		"scontrol show reservation nope":    "Reservation nope not found\n",
		"scontrol show licenses": "LicenseName=ansys\n    Total=2 Used=0 Free=2 Reserved=0 Remote=no\nLicenseName=matlab\n   " +
			" Total=10 Used=4 Free=6 Reserved=3 Remote=no\n",
		"scontrol -o show lic matlab": "LicenseName=matlab Total=10 Used=4 Free=6 Reserved=3 Remote=no\n",
		"scontrol show lic nope":      "",
		"sinfo -T": "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST\n" +
			"a            ACTIVE  2026-11-20T16:35:00  2026-11-20T17:45:00     01:10:00  n1\n" +
			"lic        INACTIVE  2026-11-20T17:36:00  2026-11-21T18:36:00   1-01:00:00  (null)\n",
	} {
		stdout, stderr, exit := run(t, shownReservations(), "", nil, strings.Fields(line)...)
		if stdout != want || stderr != "" || (exit != 0) != strings.Contains(want, "not found") {
			t.Errorf("%s: exit %d, %q\n%s\nwant\n%s", line, exit, stderr, stdout, want)
		}
	}
	for line, want := range map[string]string{"scontrol show res": "No reservations in the system\n",
		"sinfo -T": "No reservations in the system\n", "scontrol show lic": "No licenses configured in Slurm.\n"} {
		if stdout, _, exit := run(t, &clienttest.Controller{}, "", nil, strings.Fields(line)...); stdout != want || exit != 0 {
			t.Errorf("%s of nothing: exit %d, %q", line, exit, stdout)
		}
	}
}

func TestReservationSends(t *testing.T) {
	for line, want := range map[string]string{
		"create reservation=a StartTime=now Duration=60 Users=root Nodes=n1":                      `name: "a" create: true set {key: "StartTime" value: "1798859045"} set {key: "Duration" value: "60"} set {key: "Users" value: "root"} set {key: "Nodes" value: "n1"}`,
		"create reservation start=now dur=5 user=root PartitionName=debug":                        `create: true set {key: "StartTime" value: "1798859045"} set {key: "Duration" value: "5"} set {key: "Users" value: "root"} set {key: "PartitionName" value: "debug"}`,
		"create StartTime=now Duration=UNLIMITED Account=x NodeCnt=2,1 Flag=maint,Flex ResName=b": `name: "b" create: true`,
		"update ReservationName=a Duration+=30 Users-=bob Flags+=MAINT":                           `name: "a" set {key: "Duration+" value: "30"} set {key: "Users-" value: "bob"} set {key: "Flags+" value: "MAINT"}`,
		"update res=a StartTime=2027-01-03T00:00 EndTime=now+1hour":                               `name: "a" set {key: "StartTime" value: "1798934400"} set {key: "EndTime" value: "1798862645"}`,
		"update res=a":             `name: "a"`,
		"delete ReservationName=a": `name: "a" delete: true`,
		"delete reservation a b":   `name: "a" delete: true`,
	} {
		c := &clienttest.Controller{}
		stdout, stderr, exit := run(t, c, "", nil, append([]string{"scontrol"}, strings.Fields(line)...)...)
		if strings.Contains(line, "ResName") { // not a name that scontrol knows
			if exit != 1 || len(c.Updates) != 0 {
				t.Errorf("%s: exit %d, %q", line, exit, stderr)
			}
			continue
		}
		said := map[string]string{"create": "Reservation created: ", "update": "Reservation updated.\n", "delete": ""}[line[:6]]
		if exit != 0 || stderr != "" || !strings.HasPrefix(stdout, said) || len(c.Updates) != 1 {
			t.Errorf("%s: exit %d, %q, %q", line, exit, stdout, stderr)
			continue
		}
		sent(t, line, c.Updates[0].(*pb.UpdateReservationRequest), want)
	}
}

func TestReservationRefused(t *testing.T) {
	for line, want := range map[string]string{
		"create reservation=a StartTime=now Duration=60 Users=root Nodes=n1": "Error creating the reservation: Requested reservation " +
			"overlaps with another reservation\nnode n1\n",
		"update reservation=a Duration=5": "Error updating the reservation: Requested reservation " +
			"overlaps with another reservation\nslurm_update error: Requested reservation overlaps with another reservation\nnode n1\n",
		"delete reservation=a": "delete_reservation reservation=a: Requested reservation " +
			"overlaps with another reservation\nnode n1\n",
		"delete reservation a": "delete_reservation reservation: Requested reservation " +
			"overlaps with another reservation\nnode n1\n",
	} {
		c := &clienttest.Controller{Fail: pb.NewProblem(pb.CodeResvOverlap, "node n1")}
		stdout, stderr, exit := run(t, c, "", nil, append([]string{"scontrol"}, strings.Fields(line)...)...)
		if exit != 1 || stderr != want || stdout != "" {
			t.Errorf("%s: exit %d, %q, %q\nwant %q", line, exit, stdout, stderr, want)
		}
	}
	busy := &clienttest.Controller{Fail: pb.NewProblem(pb.CodeNodesBusy, "")}
	if stdout, _, _ := run(t, busy, "", nil, "scontrol", "create", "reservation", "StartTime=now", "Duration=5", "Users=root",
		"NodeCnt=9"); !strings.HasPrefix(stdout, "Note, unless nodes are directly requested") {
		t.Errorf("busy nodes: %q", stdout)
	}
}

// TestArrayOutcomes: what a real scontrol prints when some tasks of an array refuse.
func TestArrayOutcomes(t *testing.T) {
	finished, pending := pb.NewProblem(pb.CodeFinished, ""), pb.NewProblem(pb.CodeJobPending, "")
	for _, c := range []struct {
		line string
		list []*pb.JobOutcome
		want string
	}{
		{"release 12_[1-2]", []*pb.JobOutcome{{Id: "12_1", Problem: finished}, {Id: "12_2"}},
			"12_1: Job has already finished\n12_2: No error\n"},
		{"hold 12_77", []*pb.JobOutcome{{Id: "12_77", Problem: pb.NewProblem(pb.CodeInvalidJobID, "")}},
			"12_77: Invalid job id specified\n"},
		{"requeue 12_9", []*pb.JobOutcome{{Id: "12_6-9", Problem: pending}}, "12_6-9: Job is pending execution\n"},
		{"update JobId=12 Nice=3", []*pb.JobOutcome{{Id: "12_0,2,6-9"}, {Id: "12_1", Problem: finished}},
			"12_0,2,6-9: No error\n12_1: Job has already finished\n"},
		{"hold 12_1,12_2", []*pb.JobOutcome{{Id: "12_1", Problem: finished}, {Id: "12_2"}}, "12_1: Job has already finished\n"},
		{"hold 156", []*pb.JobOutcome{{Id: "156", Problem: finished}},
			"Job has already finished for job 156\nslurm_suspend error: Job has already finished\n"},
		{"hold 12_x", nil, "Invalid job id specified for job 12_x\nslurm_suspend error: Invalid job id specified\n"},
		{"hold 12_[0", nil, "Invalid job id specified for job 12_[0\nslurm_suspend error: Invalid job id specified\n"},
		{"hold 12", []*pb.JobOutcome{{Id: "12"}}, ""},
	} {
		ctl := &clienttest.Controller{Outcomes: c.list}
		_, stderr, exit := run(t, ctl, "", nil, append([]string{"scontrol"}, strings.Fields(c.line)...)...)
		if stderr != c.want || (exit != 0) != (c.want != "") {
			t.Errorf("%s: exit %d\n%s\nwant\n%s", c.line, exit, stderr, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	socket := &clienttest.Controller{Explained: map[string]string{"12": "job 12 waits: Resources\n", "13_2": "a \x1b[31m colour\n",
		"14": "since " + timespec.FormatUTC(1764309000e9) + "\n"}}
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("JST", 9*3600) // of the user; the controller speaks of UTC
	for _, c := range []struct {
		args []string
		want string
		exit int
	}{{[]string{"12"}, "job 12 waits: Resources\n", 0}, {[]string{"12", "13_2"}, "job 12 waits: Resources\n\na ", 0}, {nil, "", 1},
		{[]string{"14"}, "since 2025-11-28T14:50:00\n", 0}} {
		stdout, _, exit := runFunc(t, socket, explain.Verb().Main, c.args...)
		if exit != c.exit || !strings.HasPrefix(stdout, c.want) || strings.Contains(stdout, "\x1b") {
			t.Errorf("explain %v: exit %d, %q", c.args, exit, stdout)
		}
	}
	gone := &clienttest.Controller{Fail: pb.NewProblem(pb.CodeInvalidJobID, "there is no job 99")}
	if _, stderr, exit := runFunc(t, gone, explain.Verb().Main, "99"); exit != 1 ||
		stderr != "sluice: error: Invalid job id specified: there is no job 99\n" {
		t.Errorf("explain 99: exit %d, %q", exit, stderr)
	}
}

func TestSqueueNamesTasks(t *testing.T) {
	c := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 12, ArrayJobId: 12, ArrayTasks: "0-9%2", ArrayThrottle: 2,
		Reason: "Dependency", DependencyShown: "afterok:3_*(failed)",
		Spec: &pb.JobSpec{Name: "x", Dependency: "afterok:3"}}}}
	for line, want := range map[string]string{
		"squeue -h -j 12_3 -o %i|%K|%E":       "12_3|3|afterok:3_*(failed)\n",
		"squeue -h -j 12_[3-4],12_9 -o %i":    "12_[3-4,9]\n",
		"squeue -h -j 12 -o %i":               "12_[0-9%2]\n",
		"squeue -h -r -j 12_3,12_[7-8] -o %i": "12_3\n12_7\n12_8\n",
		"squeue -h -j 12_77 -o %i":            "",
	} {
		if stdout, stderr, exit := run(t, c, "", nil, strings.Fields(line)...); stdout != want || stderr != "" || exit != 0 {
			t.Errorf("%s: exit %d, %q, %q, want %q", line, exit, stdout, stderr, want)
		}
	}
}
