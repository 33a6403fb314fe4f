package wire

import (
	"testing"

	"github.com/containerd/ttrpc"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func encode(t testing.TB, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRequestsAreThoseOfTTRPC(t *testing.T) {
	with := []*ttrpc.KeyValue{{Key: "alive", Value: "1000"}, {Key: "sluice-build", Value: version.Ours.String()}}
	for _, want := range []*ttrpc.Request{
		{Service: "s", Method: "m", Payload: []byte("p"), TimeoutNano: 5e9, Metadata: with},
		{Service: "s", Method: "m", Metadata: with},
	} {
		var got ttrpc.Request
		if err := proto.Unmarshal(appendCall(nil, want.Service, want.Method, want.Payload, want.TimeoutNano, "1000"), &got); err != nil ||
			!proto.Equal(&got, want) {
			t.Errorf("%v became %v, %v", want, &got, err)
		}
	}
}

func refused(t testing.TB, details ...proto.Message) string {
	t.Helper()
	st := &status.Status{Code: 3, Message: "m"}
	for _, d := range details {
		a, err := anypb.New(d)
		if err != nil {
			t.Fatal(err)
		}
		st.Details = append(st.Details, a)
	}
	return encode(t, &ttrpc.Response{Status: st})
}

func TestResponses(t *testing.T) {
	problem := pb.NewProblem(pb.CodeInvalidJobID, "job 12").WithHint("squeue")
	for _, c := range []struct {
		body, payload, text string
	}{
		{encode(t, &ttrpc.Response{Payload: []byte("yes")}), "yes", ""},
		{encode(t, &ttrpc.Response{}), "", ""},
		{encode(t, &ttrpc.Response{Status: &status.Status{}, Payload: []byte("yes")}), "yes", ""},
		{refused(t), "", "m"},
		{refused(t, problem), "", problem.Error()},
		{refused(t, &pb.PingReply{Host: "h"}, problem), "", problem.Error()},
		{refused(t, &pb.PingReply{Host: "h"}), "", "m"},
	} {
		failure, payload, err := response(c.body)
		if err != nil || payload != c.payload || (failure == nil) != (c.text == "") {
			t.Errorf("%x: %v, %q, %v", c.body, failure, payload, err)
		}
		if failure != nil && (failure.Error() != c.text || failure.Code != 3) {
			t.Errorf("%x: code %d, %q, want %q", c.body, failure.Code, failure.Error(), c.text)
		}
	}
}

func FuzzResponse(f *testing.F) {
	f.Add(encode(f, &ttrpc.Response{Payload: []byte("yes")}))
	f.Add(refused(f, pb.NewProblem(pb.CodeInvalidJobID, "job 12").WithHint("squeue")))
	f.Add("\x0a\xff")
	f.Fuzz(func(t *testing.T, body string) {
		failure, _, err := response(body)
		if failure != nil && err == nil && failure.Code == 0 {
			t.Errorf("%x: refused with the code of success", body)
		}
		var want ttrpc.Response
		if proto.Unmarshal([]byte(body), &want) == nil && err != nil {
			t.Errorf("%x: %v, ttrpc can read it", body, err)
		}
	})
}
