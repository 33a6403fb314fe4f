package admit

import (
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestTextIsBounded(t *testing.T) {
	args := func(n, size int) *pb.JobSpec {
		s := &pb.JobSpec{}
		for range n {
			s.Args = append(s.Args, strings.Repeat("x", size))
		}
		return s
	}
	many := &pb.JobSpec{}
	for range maxSpec {
		many.Rlimits = append(many.Rlimits, &pb.Rlimit{})
	}
	strange := &pb.JobSpec{}
	// a field of another version's, with a megabyte
	strange.ProtoReflect().SetUnknown(append([]byte{0xfa, 0xff, 0x3f, 0x80, 0x80, 0x40}, make([]byte, 1<<20)...))
	for what, s := range map[string]*pb.JobSpec{"arguments": args(600, 1000), "one argument": args(1, 1<<20), "limits": many,
		"unknown fields": strange} {
		if p := Text(s); p.GetCode() != uint32(pb.CodePathTooLong) {
			t.Errorf("%s: %v", what, p)
		}
	}
	if p := Text(&pb.JobSpec{Dependency: "afterok" + strings.Repeat(":4000000000", 1024)}); p != nil {
		t.Errorf("a dependency on 1,024 jobs: %v", p)
	}
	if p := Text(args(4000, 100)); p != nil {
		t.Errorf("4,000 names of files: %v", p)
	}
}
