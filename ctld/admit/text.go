package admit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxText bounds every text of a specification, in bytes.
const maxText = 4096

// maxLine bounds the texts that may be long: comments, lists.
const maxLine = 64 << 10

// maxDependency bounds a dependency, as Slurm does; maxCommand a command line, which may have one as an option.
const (
	maxDependency = 128 << 10
	maxCommand    = maxDependency + maxLine
)

// maxName bounds job names and the like.
const maxName = 1024

// maxSpec bounds a whole specification, in bytes: it stays in memory, and is written with each change of its job.
const maxSpec = 512 << 10

// bytesOf are the texts of a specification that belong to the user: names of files, and texts that only the user reads. They are bytes in
// any encoding, as for the kernel; views escape invalid UTF-8. All other texts are compared with names of slurm.conf.
var bytesOf = map[protoreflect.Name]bool{"name": true, "comment": true, "admin_comment": true, "extra": true, "work_dir": true,
	"command": true, "std_in": true, "std_out": true, "std_err": true, "submit_line": true, "container": true, "export_env": true}

// longTexts may be longer than maxText, and have line breaks.
var longTexts = map[protoreflect.Name]int{"comment": maxLine, "export_env": maxLine, "dependency": maxDependency,
	"submit_line": maxCommand}

// Text refuses control characters and bidirectional marks in any text of a specification, and invalid UTF-8 except in bytesOf: they would
// break the columns of every view and can deceive on a terminal. It also refuses texts and specifications that are too long.
func Text(spec *pb.JobSpec) *pb.Problem {
	if n := proto.Size(spec); n > maxSpec {
		return pb.NewProblem(pb.CodePathTooLong, "the request has %d bytes apart from script and environment, the limit is %d", n,
			maxSpec).WithHint("give long lists of arguments to the script in a file")
	}
	var p *pb.Problem
	spec.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.StringKind {
			return true
		}
		name, valid := string(fd.Name()), !bytesOf[fd.Name()]
		if fd.IsList() {
			// script arguments are passed on unchanged; only a NUL is impossible
			for i := 0; i < v.List().Len() && p == nil; i++ {
				p = badArg(v.List().Get(i).String())
			}
			return p == nil
		}
		limit, long := longTexts[fd.Name()]
		if !long {
			limit = maxText
		}
		p = badText(name, v.String(), valid, long, limit)
		return p == nil
	})
	if p == nil {
		p = Container(spec.RunIn)
	}
	if p == nil && len(spec.Name) > maxName {
		p = pb.NewProblem(pb.CodePathTooLong, "the job name has %d bytes, at most %d", len(spec.Name), maxName)
	}
	return p
}

// Word applies the rules of Text to a text, with the length limit of a name. what names the text in the refusal.
func Word(what, s string) *pb.Problem {
	return badText(what, s, true, false, maxName)
}

// Line is Word for a longer text, such as a reason or a list of nodes.
func Line(what, s string) *pb.Problem { return badText(what, s, true, false, maxLine) }

func badArg(s string) *pb.Problem {
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return pb.NewProblem(pb.CodeInvalidSpec, "a script argument contains a NUL byte")
		}
	}
	return nil
}

// badText describes a fault in a text; valid requires UTF-8, blanks allows line breaks and tabs.
func badText(name, s string, valid, blanks bool, limit int) *pb.Problem {
	if len(s) > limit {
		return pb.NewProblem(pb.CodePathTooLong, "%s has %d bytes, at most %d", name, len(s), limit)
	}
	if valid && !utf8.ValidString(s) {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s is not valid UTF-8: %q", name, clip(s))
	}
	for _, r := range s {
		if blanks && (r == '\n' || r == '\t') {
			continue
		}
		if unicode.IsControl(r) || bidi(r) {
			return pb.NewProblem(pb.CodeInvalidSpec, "%s contains the control character %U: %q", name, r,
				clip(s)).WithHint("use printable characters")
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// bidi reports whether a character reorders text on a terminal.
func bidi(r rune) bool {
	return r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
