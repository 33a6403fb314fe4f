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

// maxSpec bounds a specification in all, in bytes: it stays in memory, and is written with each change of its job.
const maxSpec = 512 << 10

// bytesOf are the texts of a specification that are the user's own: names of files, and what nobody but the user reads. They are bytes,
// as the kernel has it, in whatever encoding; views escape what is not UTF-8. Everything else is compared with names of slurm.conf.
var bytesOf = map[protoreflect.Name]bool{"name": true, "comment": true, "admin_comment": true, "extra": true, "work_dir": true,
	"command": true, "std_in": true, "std_out": true, "std_err": true, "submit_line": true, "container": true, "export_env": true}

// longTexts are those that may be longer than maxText, and have line breaks.
var longTexts = map[protoreflect.Name]int{"comment": maxLine, "export_env": maxLine, "dependency": maxDependency,
	"submit_line": maxCommand}

// Text refuses control characters and bidirectional marks in any text of a specification, and broken UTF-8 except in bytesOf: they would
// break the columns of every view and can deceive on a terminal. It refuses what is too long as well, a text or the whole.
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
			// script arguments are passed on as they are; only a NUL cannot be
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

// Word refuses in a text what Text does, and what is longer than a name may be. What says what the text is.
func Word(what, s string) *pb.Problem {
	return badText(what, s, true, false, maxName)
}

// Line is Word for a text that may be long, such as a reason or a list of nodes.
func Line(what, s string) *pb.Problem { return badText(what, s, true, false, maxLine) }

func badArg(s string) *pb.Problem {
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return pb.NewProblem(pb.CodeInvalidSpec, "a script argument contains a NUL byte")
		}
	}
	return nil
}

// badText says what is wrong with a text; valid demands UTF-8, blanks allows line breaks and tabs.
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

// bidi are the marks that reorder text on a terminal.
func bidi(r rune) bool {
	return r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
