package wire

import (
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/version"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// The messages that wrap those of the ControllerAPI: ttrpc.Request and ttrpc.Response, google.rpc.Status, google.protobuf.Any.

// appendCall appends a ttrpc.Request: service, method, payload, the remaining time in nanoseconds (0: no limit), and as metadata
// the interval of the controller's keep-alives (patience.go) and the command's build.
func appendCall(b []byte, service, method string, payload []byte, timeoutNS int64, alive string) []byte {
	b = coding.AppendText(coding.AppendText(b, 1, service), 2, method)
	b = coding.AppendBytes(b, 3, payload)
	b = coding.AppendNumber(b, 4, uint64(max(0, timeoutNS)))
	for _, m := range [...][2]string{{aliveKey, alive}, {version.Key, version.Ours.String()}} {
		var at int
		b, at = coding.Open(b, 5)
		b = coding.Close(coding.AppendText(coding.AppendText(b, 1, m[0]), 2, m[1]), at)
	}
	return b
}

// response parses a ttrpc.Response; failure is nil for success.
func response(s string) (failure *Refusal, payload string, err error) {
	d := coding.NewDecoder(s)
	for d.Next() {
		switch d.Tag {
		case 1<<3 | coding.Chunk:
			failure, err = refusal(d.Data)
			d.Fail(err)
		case 2<<3 | coding.Chunk:
			payload = d.Data
		}
	}
	return failure, payload, d.Err()
}

// refusal parses a google.rpc.Status; nil means success.
func refusal(s string) (*Refusal, error) {
	r := &Refusal{}
	d := coding.NewDecoder(s)
	for d.Next() {
		switch d.Tag {
		case 1<<3 | coding.Varint:
			r.Code = int32(d.Number())
		case 2<<3 | coding.Chunk:
			r.Text = d.Text()
		case 3<<3 | coding.Chunk:
			if p := problem(d.Data); p != nil {
				r.Problem = p
			}
		}
	}
	if d.Err() != nil || r.Code == 0 {
		return nil, d.Err()
	}
	return r, nil
}

// problem parses a google.protobuf.Any; nil if it holds another message. If it is damaged, only the detail is lost.
func problem(s string) *msg.Problem {
	var url, value string
	d := coding.NewDecoder(s)
	for d.Next() {
		switch d.Tag {
		case 1<<3 | coding.Chunk:
			url = d.Text()
		case 2<<3 | coding.Chunk:
			value = d.Data
		}
	}
	p := &msg.Problem{}
	if d.Err() != nil || !strings.HasSuffix(url, "/sluice.v1.Problem") || p.Merge(value) != nil {
		return nil
	}
	return p
}
