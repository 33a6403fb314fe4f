package format

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/proto/coding"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestFieldsNeedWhatTheyRead: every column and sort key of squeue and sinfo, of records with anything in them, is the same when the
// record has nothing but what the column needs.
func TestFieldsNeedWhatTheyRead(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	c := &Context{Now: time.Unix(2e9, 0), Loc: time.UTC, Cluster: "c"}
	job := func(r *msg.JobRecord) Job { return Job{JobRecord: r} }
	part := &msg.PartitionRecord{Name: "debug", Nodes: "n1"}
	group := func(n *msg.NodeRecord) *NodeGroup {
		g := newGroup(part, 0)
		g.add(n, 0)
		return g
	}
	for range 300 {
		r, n := &msg.JobRecord{}, &msg.NodeRecord{}
		scramble(rnd, reflect.ValueOf(r).Elem())
		scramble(rnd, reflect.ValueOf(n).Elem())
		for i := range Jobs().Fields {
			f := &Jobs().Fields[i]
			same(t, c, f, job(r), job(onlyJob(t, r, jobNeeds(f.key()))))
		}
		for i := range Nodes().Fields {
			f := &Nodes().Fields[i]
			same(t, c, f, group(n), group(onlyNode(t, n, nodeNeeds(f.key()).With(NeedsOfFolding()))))
		}
		if got, want := AppendJob(nil, c, onlyJob(t, r, NeedsOfJobBlock()), false, 2),
			AppendJob(nil, c, r, false, 2); string(got) != string(want) {
			t.Fatalf("scontrol show job of what it needs\n%s\nof all\n%s", got, want)
		}
	}
}

func same[T any](t *testing.T, c *Context, f *Field[T], whole, some T) {
	t.Helper()
	for name, text := range map[string]func([]byte, *Context, T) []byte{"text": f.Text, "key": f.Key} {
		if text == nil {
			continue
		}
		if got, want := text(nil, c, some), text(nil, c, whole); string(got) != string(want) {
			t.Fatalf("%s of field %s is %q of what it needs, %q of a whole record", name, f.key(), got, want)
		}
	}
}

// onlyJob is a record as the controller sends it to somebody who needs so much.
func onlyJob(t *testing.T, r *msg.JobRecord, needs Needs) *msg.JobRecord {
	t.Helper()
	var whole pb.JobRecord
	if err := proto.Unmarshal(r.Marshal(), &whole); err != nil {
		t.Fatal(err)
	}
	out := &msg.JobRecord{}
	if err := out.Unmarshal(whole.AppendFields(nil, &pb.Fields{Job: needs.Job, Spec: needs.Spec})); err != nil {
		t.Fatal(err)
	}
	return out
}

func onlyNode(t *testing.T, n *msg.NodeRecord, needs Needs) *msg.NodeRecord {
	t.Helper()
	var whole pb.NodeRecord
	if err := proto.Unmarshal(n.Marshal(), &whole); err != nil {
		t.Fatal(err)
	}
	out := &msg.NodeRecord{}
	if err := out.Unmarshal(whole.AppendFields(nil, &pb.Fields{Node: needs.Node})); err != nil {
		t.Fatal(err)
	}
	return out
}

// scramble sets about half of the fields of a struct, and of those in it.
func scramble(rnd *rand.Rand, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if rnd.IntN(2) == 0 {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString([]string{"debug", "a,b", "1-3,7", "2:4", "YES", "exclusive", fmt.Sprint(rnd.IntN(100))}[rnd.IntN(7)])
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int32:
			f.SetInt(rnd.Int64N(7))
		case reflect.Int64:
			f.SetInt(rnd.Int64N(3e18))
		case reflect.Uint32, reflect.Uint64:
			f.SetUint([]uint64{1, 2, 60, 1 << 5, uint64(msg.Unlimited)}[rnd.IntN(5)])
		case reflect.Float64:
			f.SetFloat(rnd.Float64())
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			scramble(rnd, f.Elem())
		case reflect.Slice:
			if f.Type().Elem().Kind() == reflect.Pointer {
				f.Set(reflect.Append(f, reflect.New(f.Type().Elem().Elem())))
				scramble(rnd, f.Index(0).Elem())
			} else if f.Type().Elem().Kind() == reflect.String {
				f.Set(reflect.ValueOf([]string{"debug", "x"}))
			}
		}
	}
}

func TestNeedsAsARequest(t *testing.T) {
	l, _ := Jobs().ParseLetters("%i %T")
	o, _ := Jobs().ParseSort("u")
	r := NeedsOfJobs(l, o).AskJobs(&msg.JobsRequest{})
	if fmt.Sprint(r.Fields, r.SpecFields) != "[1 2 3 4 33 34 35] [2 5]" {
		t.Errorf("id and state by user need %v of a job and %v of its specification", r.Fields, r.SpecFields)
	}
	if r := everything.AskJobs(&msg.JobsRequest{}); r.Fields != nil || r.SpecFields != nil {
		t.Errorf("everything is asked for as %v and %v", r.Fields, r.SpecFields)
	}
	if r := (Needs{}).AskNodes(&msg.NodesRequest{}); coding.FieldsOf(r.Fields) == coding.EveryField {
		t.Error("nothing is asked for as everything")
	}
}
