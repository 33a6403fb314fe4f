package reactor

import (
	"strings"
	"unicode"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits of a node's reports on itself and its steps: a node must not fill the journal or write on operators' terminals.
const (
	maxReported   = 4096 // devices, instances among them
	maxMismatches = 256
	maxWords      = 4096 // bytes of one text; a list of cores may be long
	maxVerdict    = 32
	maxFiles      = 64       // of one device
	maxUsage      = 64 << 10 // bytes of the usage of one step
)

// boundDevices cuts a report to the limits.
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

// boundExit cuts the end of a step to the limits.
func boundExit(x *pb.ExitRecord) *pb.ExitRecord {
	// a copy, because a report may be handled again
	x = proto.CloneOf(x)
	// joined errors have several lines
	x.Detail, x.EpilogError = strings.ReplaceAll(x.Detail, "\n", "; "), strings.ReplaceAll(x.EpilogError, "\n", "; ")
	PlainWords(x)
	x.ProtoReflect().SetUnknown(nil)
	x.Verdict = plain(x.Verdict, maxVerdict)
	if proto.Size(x.Usage) > maxUsage {
		x.Usage = nil
	}
	return x
}

// PlainWords limits every text of a message to one line of printable characters of bounded length.
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
