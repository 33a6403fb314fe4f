package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// resvBench is a bench with four nodes in two partitions and some licenses.
func resvBench(t *testing.T) *bench {
	b := newBench(t, func(s *state.Settings) { s.Licenses = []state.License{{Name: "matlab", Count: 10}} })
	return b
}

// pairsOf reads "Key=value Key+=value" as scontrol does of a user in UTC: moments become seconds since 1970.
func pairsOf(text string, nowNS int64) []*pb.KeyValue {
	var set []*pb.KeyValue
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		if key == "StartTime" || key == "EndTime" {
			if t, err := timespec.ParseMoment(value, time.Unix(0, nowNS), time.UTC, timespec.Future); err == nil {
				value = timespec.FormatUnix(t)
			}
		}
		set = append(set, &pb.KeyValue{Key: key, Value: value})
	}
	return set
}

// resv makes, changes ("update NAME …") or deletes ("delete NAME") a reservation, and says what came of it.
func (b *bench) resv(c Caller, line string) string {
	b.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	name, set, _ := strings.Cut(rest, " ")
	if name == "-" {
		name = ""
	}
	switch r := b.do(resv.Update{Operator: c.Operator, Name: name, Set: pairsOf(set, b.now), Create: verb == "create",
		Delete: verb == "delete"}).(type) {
	case *pb.Problem:
		return fmt.Sprintf("%d %s", r.Code, r.Phrase)
	case resv.Reserved:
		return r.Name
	default:
		b.t.Fatalf("%s: %T", line, r)
	}
	return ""
}

func (b *bench) shownResv(name string) string {
	r := b.view.Reservation(name)
	if r == nil {
		return "none"
	}
	day := int64(24 * 3600e9)
	return fmt.Sprintf("%+d..%+d %s n=%d c=%d p=%s f=%s u=%s tres=%s", (r.StartNs-b.now)/60e9, (r.EndNs-b.now)/60e9%(1000*day), r.Nodes,
		r.NodeCount, r.CoreCount, r.Partition, strings.Join(r.Flags, ","), r.Users, r.Tres)
}

// TestReservations holds codes and phrases against those of a real slurmctld (22.05).
func TestReservations(t *testing.T) {
	b := resvBench(t)
	b.now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	const (
		invalidTime = "2054 Invalid time specified"
		overlap     = "2058 Requested reservation overlaps with another reservation"
		invalid     = "2053 Requested reservation is invalid"
	)
	for _, c := range [][2]string{
		{"create a StartTime=now+1hour Duration=60 Users=root Nodes=n1", "a"},
		{"create a StartTime=now+3hour Duration=60 Users=root Nodes=n1", "2082 Duplicate reservation name"},
		{"create b StartTime=now+90minutes Duration=60 Users=root Nodes=n[1-2]", overlap},
		{"create d StartTime=now+1hour Duration=60 Users=root NodeCnt=1", "d"},
		{"create b StartTime=now+90minutes Duration=60 Users=root Nodes=n[1-2] Flags=overlap", "b"},
		{"create c StartTime=now+90minutes Duration=60 Users=root Nodes=n[1-2] Flags=MAINT", "c"},
		{"create e StartTime=now+1hour Duration=60 Users=root NodeCnt=99", "2016 Requested nodes are busy"},
		{"create e StartTime=now+1hour Duration=60 Users=root NodeCnt=1", "2016 Requested nodes are busy"},
		{"create x StartTime=now+1hour EndTime=now Users=root Nodes=n1", invalidTime},
		{"create x StartTime=2020-01-01T00:00:00 EndTime=2020-01-02T00:00:00 Users=root Nodes=n1", invalidTime},
		{"create x StartTime=2020-01-01T00:00:00 Duration=10 Users=root Nodes=n1", invalidTime},
		{"create x StartTime=now Users=root Nodes=n1", invalidTime},
		{"create x StartTime=now Duration=10 Nodes=n1", "2080 Reservation request lacks users, groups or accounts"},
		{"create x StartTime=now Duration=10 Users=root,-bob Nodes=n1", "2010 Invalid user id"},
		{"create x StartTime=now Duration=10 Users=root Nodes=n9", "2018 Invalid node name specified"},
		{"create x StartTime=now Duration=10 Users=root Nodes=n[1-2", "2018 Invalid node name specified"},
		{"create x StartTime=now Duration=10 Users=root Nodes=n[1-4000000000]", "2018 Invalid node name specified"},
		{"create x StartTime=now Duration=10 Users=root", "2018 Invalid node name specified"},
		{"create x StartTime=now Duration=10 Users=root NodeCnt=0", "2006 Node count specification invalid"},
		{"create x StartTime=now Duration=10 Users=root Nodes=n1 PartitionName=nope", "2000 Invalid partition name specified"},
		{"create x StartTime=now Duration=10 Users=root Nodes=n1 Flags=FOO", "2036 Requested operation not supported on this system"},
		{"create x StartTime=now Duration=10 Users=root Flags=ANY_NODES Licenses=matlab:30", "2048 Invalid license specification"},
		{"create x StartTime=now Duration=10 Users=root Flags=ANY_NODES Licenses=nope:3", "2048 Invalid license specification"},
		{"create lic StartTime=now Duration=60 Users=root Flags=LICENSE_ONLY Licenses=matlab:6", "lic"},
		{"create lic2 StartTime=now Duration=60 Users=root Flags=ANY_NODES Licenses=matlab:6", overlap},
		{"create - StartTime=now+50hours Duration=1-2:30 Users=-bob Nodes=n1", "bob_1"},
		{"create - StartTime=now+90hours Duration=10 Accounts=foo,bar Nodes=n1", "foo_1"},
		{"create all StartTime=now+100hours Duration=10 Users=root Nodes=ALL", "all"},
		{"create part StartTime=now+110hours Duration=10 Users=root PartitionName=debug", "part"},
		{"create a,b StartTime=now+120hours Duration=10 Users=root Nodes=n1", invalid},
		{"update a", "a"},
		{"update a Duration=30", "a"},
		{"update a Duration+=30", "a"},
		{"update a Duration-=10", "a"},
		{"update a Duration-=1000", invalidTime},
		{"update a Users+=bob", "a"},
		{"update a Users-=root", "a"},
		{"update a Users-=bob", "2080 Reservation request lacks users, groups or accounts"},
		{"update a Users=", "2080 Reservation request lacks users, groups or accounts"},
		{"update a Nodes=n9", "2018 Invalid node name specified"},
		{"update a EndTime=now", invalidTime},
		{"update a Flags+=MAINT", "a"},
		{"update a Flags-=MAINT", "a"},
		{"update a StartTime=now+30", "a"},
		{"update lic StartTime=now+30", "2104 Reservation already started"},
		{"update zz Duration=5", invalid},
		{"delete zz", invalid},
		{"delete b", "b"},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	for name, want := range map[string]string{
		"a":     "+0..+50 n1 n=1 c=4 p= f=SPEC_NODES u=bob tres=cpu=4",
		"c":     "+90..+150 n[1-2] n=2 c=8 p= f=MAINT,SPEC_NODES u=root tres=cpu=8",
		"d":     "+60..+120 n2 n=1 c=4 p=debug f= u=root tres=cpu=4",
		"lic":   "+0..+60  n=0 c=0 p= f=ANY_NODES u=root tres=",
		"bob_1": "+3000..+4590 n1 n=1 c=4 p= f=SPEC_NODES u=-bob tres=cpu=4",
		"all":   "+6000..+6010 n[1-2] n=2 c=8 p= f=SPEC_NODES,ALL_NODES u=root tres=cpu=8",
		"part":  "+6600..+6610 n[1-2] n=2 c=8 p=debug f=SPEC_NODES,PART_NODES u=root tres=cpu=8",
	} {
		if got := b.shownResv(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for _, line := range []string{"create mine StartTime=now+200hours Duration=5 Users=alice Nodes=n1", "update a Duration=5", "delete a"} {
		if got := b.resv(alice, line); got != "2010 Invalid user id" {
			t.Errorf("a user: %s: %s", line, got)
		}
	}
}

func TestReservationAndJobs(t *testing.T) {
	b := resvBench(t)
	id := b.submit(&pb.JobSpec{TimeLimitS: 600})
	b.start(id, "n1")
	for _, c := range [][2]string{
		{"create x StartTime=now Duration=60 Users=u1000 Nodes=n1", "2016 Requested nodes are busy"},
		{"create x StartTime=now+5minutes Duration=60 Users=u1000 Nodes=n1 Flags=MAINT", "2016 Requested nodes are busy"},
		{"create x StartTime=now+15minutes Duration=60 Users=u1000 Nodes=n1", "x"},
		{"create y StartTime=now Duration=10 Users=u1000 Nodes=n1 Flags=IGNORE_JOBS", "y"},
		{"create z StartTime=now Duration=10 Users=u1000 NodeCnt=1", "z"},
		{"create w StartTime=now Duration=10 Users=u1000 NodeCnt=1", "2016 Requested nodes are busy"},
	} {
		if got := b.resv(root, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	if got := b.shownResv("z"); !strings.Contains(got, " n2 ") {
		t.Errorf("a count must take the free node: %s", got)
	}
	in := b.submit(&pb.JobSpec{Reservation: "z"})
	if got := b.resv(root, "delete z"); got != "2055 Requested reservation is in use" {
		t.Errorf("with a job that waits: %s", got)
	}
	b.start(in, "n2")
	if got := b.resv(root, "delete z"); got != "2055 Requested reservation is in use" {
		t.Errorf("with a job that runs: %s", got)
	}
	b.ended(in, "n2", "exited", 0)
	if got := b.resv(root, "delete z"); got != "z" {
		t.Errorf("without: %s", got)
	}
}

func TestReservationEnds(t *testing.T) {
	b := resvBench(t)
	b.now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano() // a Friday
	for _, line := range []string{
		"create once StartTime=now+1hour Duration=60 Users=u1000 Nodes=n1",
		"create free StartTime=now+1hour Duration=60 Users=u1000 Nodes=n2 Flags=NO_HOLD_JOBS_AFTER",
		"create day StartTime=now+4hours Duration=60 Users=u1000 Nodes=n1 Flags=DAILY",
		"create work StartTime=now+4hours Duration=60 Users=u1000 Nodes=n2 Flags=WEEKDAY",
	} {
		if got := b.resv(root, line); strings.Contains(got, " ") {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := b.resv(root,
		"create clash StartTime=now+100hours Duration=60 Users=u1000 Nodes=n1"); got != "2058 Requested reservation overlaps with "+
		"another reservation" {
		t.Errorf("at a repetition of the daily one: %s", got)
	}
	if got := b.resv(root, "create weekend StartTime=now+28hours Duration=60 Users=u1000 Nodes=n2"); got != "weekend" {
		t.Errorf("on Saturday, when that of weekdays is not: %s", got)
	}
	held, free := b.submit(&pb.JobSpec{Reservation: "once"}), b.submit(&pb.JobSpec{Reservation: "free"})
	b.now += 7 * 3600e9
	b.do(Tick{})
	if j := b.job(held); j.Priority != 0 || j.Reason != "ReservationDeleted" || j.StateFlags&pb.JobResvDelHold == 0 {
		t.Errorf("a job of a reservation that is over: %s, priority %d", b.state(held), j.Priority)
	}
	if j := b.job(free); j.Priority == 0 || j.Spec.Reservation != "" {
		t.Errorf("a job of a reservation that holds none: %s in %q", b.state(free), j.Spec.Reservation)
	}
	for name, want := range map[string]string{"once": "none", "day": "+1260..+1320", "work": "+4140..+4200"} {
		if got := b.shownResv(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	b.do(UpdateJob{Caller: alice, IDs: []string{fmt.Sprint(held)}, Set: []*pb.KeyValue{{Key: "ReservationName", Value: ""}}})
	b.do(Control{Caller: alice, Verb: "release", IDs: []string{fmt.Sprint(held)}})
	if j := b.job(held); b.state(held) != "PENDING None" || j.Priority == 0 || j.StateFlags != 0 {
		t.Errorf("taken out of it and released: %s, flags %d", b.state(held), j.StateFlags)
	}
}

func TestReservationAccess(t *testing.T) {
	b := resvBench(t)
	b.resv(root, "create r StartTime=now+1hour Duration=60 Users=u1000 Nodes=n1")
	b.resv(root, "create n StartTime=now+1hour Duration=60 Users=-u1000 Nodes=n2")
	set := func(c Caller, id uint32, name string) string {
		out := b.do(UpdateJob{Caller: c, IDs: []string{fmt.Sprint(id)},
			Set: []*pb.KeyValue{{Key: "ReservationName", Value: name}}}).(Outcomes)
		return out.List[0].Problem.GetPhrase()
	}
	mine, theirs := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Uid: bob.UID})
	for _, c := range []struct {
		id   uint32
		name string
		want string
	}{{mine, "r", ""}, {theirs, "r", "Access denied to requested reservation"}, {mine, "n", "Access denied to requested reservation"},
		{theirs, "n", ""},
		{mine, "nope", "Requested reservation is invalid"}, {mine, "r,n", "Requested reservation is invalid"}, {mine, "", ""}} {
		if got := set(root, c.id, c.name); got != c.want {
			t.Errorf("job %d, reservation %q: %q, want %q", c.id, c.name, got, c.want)
		}
	}
}

// TestDaysOfReservationsAreTheClusters: Friday at five in Tokyo is Thursday in UTC; the next weekday there is Monday.
func TestDaysOfReservationsAreTheClusters(t *testing.T) {
	for zone, want := range map[*time.Location]string{time.UTC: "2026-11-20 20:00", time.FixedZone("JST", 9*3600): "2026-11-22 20:00"} {
		b := newBench(t, func(s *state.Settings) { s.Zone = zone })
		b.now = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC).UnixNano()
		if got := b.resv(root, "create r StartTime=20:00 Duration=60 Users=u1000 Nodes=n1 Flags=WEEKDAY"); got != "r" {
			t.Fatal(got)
		}
		b.now += 10 * 3600e9
		b.do(Tick{})
		if got := time.Unix(0, b.view.Reservation("r").StartNs).UTC().Format("2006-01-02 15:04"); got != want {
			t.Errorf("in zone %s the next one begins at %s UTC, want %s", zone, got, want)
		}
	}
}

// TestMomentsComeAsSeconds: the controller does not know in which zone a user has typed.
func TestMomentsComeAsSeconds(t *testing.T) {
	b := resvBench(t)
	id := fmt.Sprint(b.submit(&pb.JobSpec{}))
	for _, value := range []string{"now", "2027-01-02T03:04:05", "", "9223372036854775807", "-9223372036854775808"} {
		set := []*pb.KeyValue{{Key: "StartTime", Value: value}}
		p, ok := b.do(resv.Update{Operator: true, Name: "r", Create: true, Set: set}).(*pb.Problem)
		if !ok || p.Code != uint32(pb.CodeInvalidTime) {
			t.Errorf("a reservation with StartTime=%s: %v", value, p)
		}
		p = b.do(UpdateJob{Caller: root, IDs: []string{id}, Set: set}).(Outcomes).List[0].Problem
		if p.GetCode() != uint32(pb.CodeInvalidTime) {
			t.Errorf("a job with StartTime=%s: %v", value, p)
		}
	}
}
