package reactor

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestNotify(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	say := func(c Caller, text string) *pb.Problem {
		return b.do(Control{Caller: c, Verb: "notify", IDs: []string{fmt.Sprint(id)}, Text: text}).(Outcomes).List[0].Problem
	}
	if p := say(alice, "early"); p.GetCode() != uint32(pb.CodeDisabled) {
		t.Errorf("a pending job: %v", p)
	}
	b.start(id, "n1")
	for text, want := range map[string]pb.Code{"\x1b[2J": pb.CodeInvalidSpec, strings.Repeat("x", maxNotice+1): pb.CodePathTooLong} {
		if p := say(alice, text); p.GetCode() != uint32(want) {
			t.Errorf("%.20q: %v", text, p)
		}
	}
	if p := say(bob, "hello"); p.GetCode() != uint32(pb.CodeUserID) {
		t.Errorf("another user's job: %v", p)
	}
	for _, c := range []Caller{alice, root} {
		if p := say(c, "two words"); p != nil {
			t.Error(p)
		}
	}
	s := b.job(id).Signals
	if len(s) != 2 || s[0].Text != "two words" || s[0].Signal != 0 || s[0].Target != pb.SignalBatch || s[1].Seq != 2 {
		t.Errorf("messages: %v", s)
	}
}
