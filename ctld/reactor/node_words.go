package reactor

import (
	"strings"
	"unicode"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What a node may say of itself and its steps: a node speaks for itself alone, and must not fill the journal or write on operators'
// terminals.
const (
	maxReported   = 4096 // devices, instances among them
	maxMismatches = 256
	maxWords      = 4096 // bytes of one text; a list of cores may be long
	maxVerdict    = 32
	maxFiles      = 64       // of one device
	maxUsage      = 64 << 10 // bytes of what one step has used
)

// boundDevices cuts a report to what is taken in.
func boundDevices(devices []*pb.Device, mismatches []string) ([]*pb.Device, []string) {
	devices, mismatches = devices[:min(len(devices), maxReported)], mismatches[:min(len(mismatches), maxMismatches)]
	for _, d := range devices {
		PlainWords(d)
		d.Files = d.Files[:min(len(d.Files), maxFiles)]
	}
	for i, text := range mismatches {
		mismatches[i] = plain(text, maxWords)
	}
	return devices, mismatches
}

// boundExit cuts the end of a step to what is taken in.
func boundExit(x *pb.ExitRecord) *pb.ExitRecord {
	// a report may be handed in again
	x = proto.CloneOf(x)
	// errors that were joined
	x.Detail, x.EpilogError = strings.ReplaceAll(x.Detail, "\n", "; "), strings.ReplaceAll(x.EpilogError, "\n", "; ")
	PlainWords(x)
	x.ProtoReflect().SetUnknown(nil)
	x.Verdict = plain(x.Verdict, maxVerdict)
	if proto.Size(x.Usage) > maxUsage {
		x.Usage = nil
	}
	return x
}

// PlainWords makes every text of a message one line of printable characters, and not too long.
func PlainWords(m proto.Message) { plainWords(m.ProtoReflect()) }

func plainWords(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text, message := f.Kind() == protoreflect.StringKind, f.Message() != nil
		switch {
		case f.IsMap():
		case text && f.IsList():
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(plain(v.List().Get(i).String(), maxWords)))
			}
		case text:
			m.Set(f, protoreflect.ValueOfString(plain(v.String(), maxWords)))
		case message && f.IsList():
			for i := range v.List().Len() {
				plainWords(v.List().Get(i).Message())
			}
		case message:
			plainWords(v.Message())
		}
		return true
	})
}

func plain(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
