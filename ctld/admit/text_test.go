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
	for _, bytes := range []int{128<<10 - 1, 128 << 10, 128<<10 + 1} {
		s := &pb.JobSpec{Dependency: strings.Repeat("1", bytes)}
		s.SubmitLine = "sbatch -d " + s.Dependency
		if p := Text(s); (p == nil) != (bytes <= 128<<10) {
			t.Errorf("a dependency of %d bytes, given on the command line: %v", bytes, p)
		}
	}
	if p := Text(args(4000, 100)); p != nil {
		t.Errorf("4,000 names of files: %v", p)
	}
}
