package stepd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// mpiStep is a step of n tasks that find each other; ask is there for what they execute.
func mpiStep(n int, script string) (*pb.Bundle, *pb.StepWork) {
	b := stepBundle(n)
	b.Env = append(b.Env, "SLURM_STEP_NUM_NODES=1", fmt.Sprintf("SLURM_STEP_NUM_TASKS=%d", n))
	b.Step.Spec = &pb.StepSpec{Mpi: "pmi2"}
	work := stepWork("bash", "-c", `ask() { echo "$1" >&"$PMI_FD" && read -r line <&"$PMI_FD" && echo "$line"; }
ask "cmd=init pmi_version=1 pmi_subversion=1" >/dev/null
`+script)
	work.PmiMapping = "(vector,(0,1,2))"
	return b, work
}

// TestTasksFindEachOther, however they are started, and nothing else of the step has their sockets.
func TestTasksFindEachOther(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "sluice-stepd-dir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	prolog := "#!/bin/sh\nls -l /proc/$$/fd | grep -q socket: && echo print a socket\nexit 0\n"
	if err := os.WriteFile(dir+"/prolog", []byte(prolog), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, prologs := range [][]string{nil, {dir + "/prolog"}} {
		b, work := mpiStep(2, `ask "cmd=get_my_kvsname"
ask "cmd=put kvsname=$PMI_JOBID key=k$PMI_RANK value=v$PMI_RANK"
ask cmd=barrier_in
ask "cmd=get kvsname=$PMI_JOBID key=k$((PMI_SIZE - 1 - PMI_RANK))"
ask "cmd=get kvsname=$PMI_JOBID key=PMI_process_mapping"
ask "cmd=publish_name service=s$PMI_RANK port=p$PMI_RANK"
ask cmd=barrier_in
ask "cmd=lookup_name service=s$((PMI_SIZE - 1 - PMI_RANK))"
ask cmd=finalize
echo $SLURM_MPI_TYPE $(ls -l /proc/$$/fd | grep -c socket:)`)
		b.TaskProlog = prologs
		s := beginStep(t, b, work)
		s.end()
		s.Await("the last word", func() bool { return s.Ended != nil })
		for i := range 2 {
			want := fmt.Sprintf("cmd=my_kvsname rc=0 kvsname=7.0\ncmd=put_result rc=0\ncmd=barrier_out rc=0\n"+
				"cmd=get_result rc=0 value=v%d\ncmd=get_result rc=0 value=(vector,(0,1,2))\ncmd=publish_result info=ok\ncmd=barrier_out rc=0\n"+
				"cmd=lookup_result info=ok port=p%[1]d\ncmd=finalize_ack rc=0\npmi2 1\n", 1-i)
			if got := s.Text(fmt.Sprint("out ", i)); got != want {
				t.Errorf("task %d: %q, want %q", i, got, want)
			}
		}
	}
}

// TestTaskThatIsNotUnderstood loses its connection, and the others learn that they wait in vain.
func TestTaskThatIsNotUnderstood(t *testing.T) {
	b, work := mpiStep(2, `if [ $PMI_RANK = 1 ]; then ask cmd=barrier_in; exit; fi
trap '' PIPE # the socket is closed while there is more to write
ask "$(head -c 100000 /dev/zero | tr '\0' x)"
echo ended`)
	s := beginStep(t, b, work)
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if out, other := s.Text("out 0"), s.Text("out 1"); out != "ended\n" || other != "cmd=barrier_out rc=-1\n" {
		t.Errorf("%q, %q", out, other)
	}
	said := strings.Join(s.Said, "\n")
	for _, want := range []string{"slurmstepd: error: mpi/pmi2: task 0: client request too long",
		"slurmstepd: error: mpi/pmi2: the tasks cannot meet: task 0 takes part no more"} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
}

// TestAbort ends all tasks, and tells srun, which ends those of other nodes.
func TestAbort(t *testing.T) {
	b, work := mpiStep(2, `if [ $PMI_RANK = 0 ]; then ask "cmd=abort exitcode=7"; fi; sleep 1000`)
	s := beginStep(t, b, work)
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if unix.WaitStatus(rec.WaitStatus).Signal() != unix.SIGKILL || !slices.Contains(s.Frames, stepwire.Abort) {
		t.Errorf("%v, frames %v", rec, s.Frames)
	}
}

// TestWithoutMPI: nothing of it is in the environment.
func TestWithoutMPI(t *testing.T) {
	b, work := stepBundle(1), stepWork("sh", "-c", "env | grep -c MPI; ls -l /proc/$$/fd | grep -c socket:")
	b.Step.Spec = &pb.StepSpec{Mpi: "none"}
	s := beginStep(t, b, work)
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 0"); got != "0\n0\n" {
		t.Errorf("%q", got)
	}
}
