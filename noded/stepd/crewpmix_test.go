package stepd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// pmixStep is a step of two tasks on one node with a sluice-pmix that is this script of Python, in which take() reads a message and
// give(kind, bytes) writes one; ready is an answer with variables for both tasks. "": there is none.
func pmixStep(t *testing.T, server, script string) (*pb.Bundle, *pb.StepWork) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sluice-stepd-pmix-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "sluice-pmix")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const library = `#!/usr/bin/python3
import os, struct, sys
shim = os.fdopen(os.dup(10), "r+b", buffering=0)
os.close(10)
def take():
    kind, flags, zero, task, size = struct.unpack(">BBHII", shim.read(12))
    return kind, task, shim.read(size)
def give(kind, data, flags=1):
    shim.write(struct.pack(">BBHII", kind, flags, 0, 0, len(data)) + data)
def field(n, data):
    return bytes([n << 3 | 2, len(data)]) + data
def ready(*env):
    return b"".join(field(1, bytes([8, rank]) + b"".join(field(2, kv) for kv in env)) for rank in (0, 1))
kind, task, job = take()
`
	if server != "" {
		if err := os.WriteFile(program, []byte(library+server), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := pmixProgram
	pmixProgram = func(string) string { return program }
	t.Cleanup(func() { pmixProgram = old })
	b := stepBundle(2)
	b.Env = append(b.Env, "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NUM_TASKS=2")
	b.Step.Spec = &pb.StepSpec{Mpi: "pmix"}
	work := stepWork("sh", "-c", script)
	work.Places = []*pb.StepPlace{{Node: "n1", Tasks: []uint32{0, 1}}}
	return b, work
}

// serves is a server that does what it should: it is the user's process, without the user's variables, and hears which tasks have ended.
const serves = `give(49, ready(b"PMIX_RANK=r", b"PMIX_UID=%d" % os.getuid(), b"PMIX_OF_USER=%d" % ("A" in os.environ)))
kind, task, data = take()
give(7, b"\x1b[31mheard %d %d" % (kind, kind))
shim.read(1)
`

// TestPMIxServer runs as the user, before the tasks, and ends with them.
func TestPMIxServer(t *testing.T) {
	b, work := pmixStep(t, serves, `echo $PMIX_RANK $PMIX_UID $PMIX_OF_USER $SLURM_MPI_TYPE; [ $SLURM_PROCID = 0 ] || exec sleep 1000`)
	s := beginStep(t, b, work)
	s.Await("a word of the server", func() bool { return len(s.Said) > 0 })
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_KILL})
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	want := fmt.Sprintf("r %d 0 pmix\n", b.Uid)
	if got := s.Text("out 0"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if s.Said[0] != "slurmstepd: error: ?[31mheard 50 50" {
		t.Errorf("%q", s.Said)
	}
}

// TestPMIxServerThatIsHostile has no effect but on its own step, and none at all on tasks that do not need it.
func TestPMIxServerThatIsHostile(t *testing.T) {
	for name, c := range map[string]struct{ server, said string }{
		"a frame of no kind": {"give(49, ready(b'PMIX_A=1'))\ngive(99, b'')\nshim.read(1)\n",
			"mpi/pmix: sluice-pmix is not understood: a message of kind 99"},
		"a fence where there is no other node": {"give(49, ready(b'PMIX_A=1'))\ngive(32, b'')\nshim.read(1)\n",
			"mpi/pmix: sluice-pmix is not understood: a message of kind 32"},
		"a frame that is too long": {"give(49, ready(b'PMIX_A=1'))\nshim.write(b'\\xff' * 12)\nshim.read(1)\n",
			"mpi/pmix: sluice-pmix is not understood: a frame of 4294967295 bytes"},
		"a message that does not end": {"give(49, ready(b'PMIX_A=1'))\nfor i in range(1000): give(32, bytes(65536), 0)\n",
			"mpi/pmix: sluice-pmix is not understood: a message of more than"},
		"pieces of two messages": {"give(49, ready(b'PMIX_A=1'))\ngive(32, b'', 0)\ngive(34, b'')\nshim.read(1)\n",
			"mpi/pmix: sluice-pmix is not understood: a frame of kind 34 within"},
		"many lines": {"give(49, ready(b'PMIX_A=1'))\nfor i in range(1000): give(7, b'line %d' % i)\nshim.read(1)\n", "line 0"},
	} {
		t.Run(name, func(t *testing.T) {
			b, work := pmixStep(t, c.server, "read line; exit 3")
			s := beginStep(t, b, work)
			s.Await("what is said of it", func() bool { return strings.Contains(strings.Join(s.Said, "\n"), c.said) })
			s.Send(stepwire.In, stepwire.All, []byte("\n"))
			rec := s.end()
			s.Await("the last word", func() bool { return s.Ended != nil })
			if rec.WaitStatus != 3<<8 || rec.Verdict != "exited" || len(s.Said) > maxPMIxLines+1 {
				t.Errorf("%v, %d lines", rec, len(s.Said))
			}
		})
	}
}

// TestPMIxServerThatDoesNotStart: the step is refused, and that is no fault of the node's.
func TestPMIxServerThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct{ server, detail string }{
		"there is none":         {"", "--mpi=pmix: node n1 has no "},
		"it ends":               {"sys.exit('no library')\n", "no library: it has ended before it was ready"},
		"it says so":            {"give(49, field(2, b'no memory'))\nshim.read(1)\n", "no memory"},
		"it says nothing right": {"give(32, b'')\nshim.read(1)\n", "a frame of kind 32 before it was ready"},
		"a variable of others":  {"give(49, ready(b'LD_PRELOAD=x'))\nshim.read(1)\n", `a variable "LD_PRELOAD=x" for task 0`},
		"none for the tasks":    {"give(49, ready())\nshim.read(1)\n", "it has 0 variables for task 0"},
	} {
		for _, byDefault := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", by default ", byDefault), func(t *testing.T) {
				b, work := pmixStep(t, c.server, "exit 3")
				work.MpiByDefault = byDefault
				s := beginStep(t, b, work)
				rec := s.end()
				s.Await("the last word", func() bool { return s.Ended != nil })
				if byDefault {
					if said := strings.Join(s.Said, "\n"); rec.WaitStatus != 3<<8 || c.server != "" && !strings.Contains(said, c.detail) {
						t.Errorf("%v, said %q", rec, said)
					}
				} else if rec.Verdict != pb.VerdictLaunchFailed || rec.WaitStatus != 1<<8 || !strings.Contains(rec.Detail, c.detail) {
					t.Errorf("%v, want %q", rec, c.detail)
				}
			})
		}
	}
}
