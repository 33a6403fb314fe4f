package stepd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// thisProgram is the path of the shim's program in a process started by the trampoline.
const thisProgram = "/proc/self/fd/5"

// containerPatience is how long the creation of a container may take, including the pull of its image. The step's time limit does
// not run meanwhile.
const containerPatience = time.Hour

// containerError reports a container that cannot be created: there is no such image, or no Podman on this node.
type containerError struct{ why string }

func (e *containerError) Error() string { return "container: " + e.why }

// contain creates a step's container before its tasks, as the user and in the step's cgroup. say receives progress.
func (l *launcher) contain(t *task, env []string, say func(string)) error {
	if t.b.Container == nil {
		return nil
	}
	err := l.makeContainer(t, env, say)
	if err != nil { // clean up
		_ = t.grp.KillOwn()
		l.drain()
	}
	return err
}

func (l *launcher) makeContainer(t *task, env []string, say func(string)) error {
	if t.b.Uid == 0 {
		return &containerError{"root's jobs run in no containers: what keeps a container apart is that its user is not root"}
	}
	job, err := l.containerJob(t)
	if err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer r.Close()
	b := &pb.Bundle{Key: t.b.Key, Uid: t.b.Uid, Gid: t.b.Gid, Groups: t.b.Groups, Limits: t.b.Limits, Env: env,
		Argv: []string{thisProgram, "stepd", container.Arg, "setup", job}}
	p, err := l.start(&task{b: b, dir: t.dir, grp: t.grp}, &stdio{null, null, int(w.Fd())})
	w.Close()
	if err != nil {
		kill(p)
		return err
	}
	late := time.AfterFunc(containerPatience, func() { _ = t.grp.KillOwn() })
	why := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), container.Complaint); ok {
			why = text
		} else {
			say(lines.Text())
		}
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
	var ws syscall.WaitStatus
	_, err = wait4(p.pid, &ws, 0, nil)
	switch inTime := late.Stop(); {
	case err != nil:
		return fmt.Errorf("cannot wait for process %d: %w", p.pid, err)
	case ws.Exited() && ws.ExitStatus() == 0:
		return nil
	case !inTime:
		why = fmt.Sprintf("it could not be made within %v", containerPatience)
	case why == "":
		why = fmt.Sprintf("the process that makes it has ended with wait status %#x", uint32(ws))
	}
	return &containerError{why}
}

// containerJob creates the directories of a container and encodes the description for its setup.
func (l *launcher) containerJob(t *task) (string, error) {
	j := containerOf(t.b, t.dir)
	for _, dir := range []string{j.Step, j.User, j.Run} {
		if err := l.folderOf(dir, t.b); err != nil {
			return "", err
		}
	}
	return j.Encode()
}

// folderOf creates a directory of the user's and its parent. It retries, because the node daemon may delete the parent in
// between, with the last container of another user.
func (l *launcher) folderOf(dir string, b *pb.Bundle) error {
	for {
		if err := os.Mkdir(filepath.Dir(dir), 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := l.ownFolder(dir, b); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
}

// ownFolder creates a directory of the user's in a root-owned one.
func (l *launcher) ownFolder(dir string, b *pb.Bundle) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil && l.self.root {
		err = os.Lchown(dir, int(b.Uid), int(b.Gid))
	}
	return err
}

// containerOf returns the container of a step with directory dir.
func containerOf(b *pb.Bundle, dir string) *container.Job {
	spool, user := filepath.Dir(filepath.Dir(dir)), number(b.Uid)
	base := filepath.Join(spool, container.Folder)
	j := &container.Job{Step: filepath.Join(base, folder.OfContainer(b.Key)), User: filepath.Join(base, user),
		Run:  filepath.Join(container.RunFolder(spool), user),
		Spec: b.Container.GetSpec(), Devices: b.Container.GetDevices(), Node: nodeName(b.Env)}
	if j.Spec == nil {
		j.Bundle, j.Runtime, j.ID, j.Number = b.Container.GetBundle(), b.Container.GetRuntime(), b.Key.GetJobId(), b.Key.GetStep()
	}
	if b.Key.GetStep() == pb.BatchStep {
		j.Script = filepath.Join(dir, folder.Script)
	}
	return j
}

// inContainer returns the command line that enters the container and executes argv there.
func inContainer(t *task, argv []string) ([]string, error) {
	job, err := containerOfTask(t.b, t.dir, t.member).Encode()
	if err != nil {
		return nil, err
	}
	return append([]string{thisProgram, "stepd", container.Arg, "enter", job}, argv...), nil
}

func containerOfTask(b *pb.Bundle, dir string, m *member) *container.Job {
	j := containerOf(b, dir)
	if m != nil {
		j.Task = m.rank
	}
	return j
}

// endOfContainer returns the epilog of a task in an OCI bundle, which makes the runtime delete the container; nil: nothing to do.
func (r *run) endOfContainer(b *pb.Bundle, m *member) *epilog {
	if b.GetContainer().GetRuntime() == nil {
		return nil
	}
	job, err := containerOfTask(b, r.dir, m).Encode()
	if err != nil {
		return nil
	}
	argv := []string{thisProgram, "stepd", container.Arg, container.EndArg, job}
	return &epilog{&task{b: b, dir: r.dir, grp: r.grp}, r.launch, argv, true}
}

// outside returns the bundle for programs beside the tasks, not in their container.
func outside(b *pb.Bundle) *pb.Bundle {
	b = proto.CloneOf(b)
	b.Container = nil
	return b
}

// containing reports whether a container is being created: that of this step, or of the step for which srun made this allocation.
// The time limit does not run meanwhile.
func (r *run) containing() bool {
	if r.b.HoldOnly {
		return r.b.Container != nil && !r.contained
	}
	return r.b.Container != nil && r.phase == pb.StepPhase_STEP_PREPARING
}

// lookEvery is how often an allocation checks for the container of its step.
const lookEvery = 2 * time.Second

// lookForContainer starts the time limit of an allocation when its first step has its container, or has ended.
func (r *run) lookForContainer() {
	if !r.b.HoldOnly || !r.containing() {
		return
	}
	first := proto.CloneOf(r.b.Key)
	first.Step = 0
	spool := filepath.Dir(filepath.Dir(r.dir))
	if !container.Made(filepath.Join(spool, container.Folder, folder.OfContainer(first))) &&
		!exists(filepath.Join(spool, folder.Steps, folder.Name(first), folder.Exit)) &&
		clock.Boot()-r.limit.begunNS < int64(containerPatience) {
		return
	}
	r.contained = true
	if !r.frozen {
		r.limit.goOn(clock.Boot())
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// intoStderr writes lines to the job's standard error, of whatever kind.
func (t *task) intoStderr(fd int) func(string) {
	if t.tell != nil {
		return t.tell.write
	}
	return func(line string) { _, _ = unix.Write(fd, []byte(line+"\n")) }
}
