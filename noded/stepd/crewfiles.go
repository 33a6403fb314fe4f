package stepd

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/conf/filename"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// plan creates the tasks from the bundle and from srun's message. It accesses no file system.
func (c *crew) plan() error {
	program := map[uint32]*pb.StepProgram{}
	var all *pb.StepProgram
	for _, p := range c.work.Programs {
		if len(p.Tasks) == 0 {
			all = p
		}
		for _, rank := range p.Tasks {
			program[rank] = p
		}
	}
	if f := c.work.Receive; f != nil {
		if f.ByNode {
			f = proto.CloneOf(f)
			f.Path += "_" + nodeName(c.b.Env)
		}
		argv, err := receiver(f)
		if err != nil {
			return err
		}
		all = &pb.StepProgram{Argv: argv}
	}
	base := overlay(overlay(unsetEnv(c.work.Env, "SLURM_TASK_PID"), c.b.Env), c.about())
	limits := c.rlimits()
	for i, t := range c.b.Step.Tasks {
		p := program[t.Rank]
		if p == nil {
			p = all
		}
		if len(p.GetArgv()) == 0 {
			return fmt.Errorf("srun sent no program for task %d", t.Rank)
		}
		b := &pb.Bundle{Key: c.b.Key, Uid: c.b.Uid, Gid: c.b.Gid, Groups: c.b.Groups, Umask: c.work.Umask & 0o777, Dir: c.work.Dir,
			Argv: p.Argv, Env: overlay(base, t.Env), Rlimits: limits, Limits: c.b.Limits, Privacy: c.b.Privacy, Cgroup: c.b.Cgroup,
			TaskProlog: slices.Clone(c.b.TaskProlog), Container: c.b.Container}
		if c.work.Receive != nil {
			b.TaskProlog = nil
		} else if c.work.TaskProlog != "" {
			b.TaskProlog = append(b.TaskProlog, c.work.TaskProlog)
		}
		if c.work.ByNode {
			b.Argv = slices.Clone(b.Argv)
			b.Argv[0] += "_" + nodeName(c.b.Env)
		}
		m := &member{rank: t.Rank, local: i, b: b, cpus: t.Cpus, pidfd: -1, pmi: -1, files: stdio{-1, -1, -1},
			receives: c.work.Receive != nil}
		c.members = append(c.members, m)
		c.reads(m)
	}
	c.left = len(c.members)
	if c.work.Receive != nil {
		return nil
	}
	return c.meet()
}

// about returns variables about srun: its address, as this node sees it.
func (c *crew) about() (env []string) {
	if host, port, err := net.SplitHostPort(c.wire.conn.RemoteAddr().String()); err == nil {
		env = append(env, "SLURM_LAUNCH_NODE_IPADDR="+host, "SLURM_SRUN_COMM_HOST="+host, "SLURM_SRUN_COMM_PORT="+port,
			"SLURM_STEP_LAUNCHER_PORT="+port)
	}
	env = append(env, fmt.Sprintf("SLURM_UMASK=%04o", c.work.Umask&0o777))
	if mpi := c.b.Step.GetSpec().GetMpi(); mpi != "" && mpi != "none" {
		env = append(env, "SLURM_MPI_TYPE="+mpi)
	}
	if getEnv(c.work.Env, "TMPDIR") == "" {
		env = append(env, "TMPDIR=/tmp")
	}
	return env
}

// reads creates the queue for a task's part of srun's input, which may arrive before the task exists.
func (c *crew) reads(m *member) {
	pty, all := c.b.Step.Pty, c.work.InTask == stepwire.All
	if pty && m.rank == 0 || !pty && c.work.StdIn == "" && (all || c.work.InTask == m.rank) {
		m.in = c.in.add(m.rank, pty)
	}
}

// overlay returns the variables of base, replaced by those of over with the same name.
func overlay(base, over []string) []string {
	at := make(map[string]int, len(base)+len(over))
	out := make([]string, 0, len(base)+len(over))
	for i, kv := range append(base[:len(base):len(base)], over...) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			continue
		}
		if j, has := at[name]; !has {
			at[name] = len(out)
			out = append(out, kv)
		} else if i >= len(base) { // of duplicate names the first counts, as for getenv(3)
			out[j] = kv
		}
	}
	return out
}

// rlimits returns srun's limits that propagate (those in the bundle, without values) or that --propagate names, no higher than
// this process's own.
func (c *crew) rlimits() (out []*pb.Rlimit) {
	for _, r := range c.work.Rlimits {
		i := slices.IndexFunc(c.b.Rlimits, func(p *pb.Rlimit) bool { return p.Resource == r.Resource })
		if i < 0 && !r.Asked || r.Resource > math.MaxInt8 {
			continue
		}
		var own unix.Rlimit
		if unix.Getrlimit(int(r.Resource), &own) != nil {
			continue
		}
		hard := own.Max
		if i >= 0 {
			hard = min(hard, c.b.Rlimits[i].Hard)
		}
		out = append(out, &pb.Rlimit{Resource: r.Resource, Soft: min(r.Soft, hard), Hard: hard})
	}
	return out
}

// asUser does everything that involves the user's paths, for all tasks. note is about the working directory.
func (c *crew) asUser(l *launcher) (note string, err error) {
	if err := l.self.become(c.b.Uid, c.b.Gid, c.b.Groups); err != nil {
		if l.self.root {
			err = &identityError{err}
		}
		return "", err
	}
	dir := c.work.Dir
	if note, err = chdirOrTmp(dir); note != "" {
		dir = "/tmp"
	}
	if err == nil {
		err = c.open(dir)
	}
	if lerr := l.self.leave(); lerr != nil {
		return note, &identityError{lerr}
	}
	return note, err
}

// open opens the files of all tasks, and finds their programs.
func (c *crew) open(dir string) error {
	o := opener{c: c, dir: dir, shared: map[string]int{}, found: map[string]string{}}
	for _, m := range c.members {
		if err := o.member(m); err != nil {
			return err
		}
		if m.receives {
			m.found = true
			continue
		}
		if err := c.socket(m); err != nil {
			return err
		}
		m.b.Argv = slices.Clone(m.b.Argv)
		if m.b.Container != nil { // it is looked up in the container
			m.found = true
			continue
		}
		m.b.Argv[0], m.found = o.program(m.b.Argv[0], m.b.Env)
	}
	return nil
}

type opener struct {
	c      *crew
	dir    string
	shared map[string]int    // by path: tasks of this node share a file, because separate descriptors would overwrite each other
	found  map[string]string // programs by name and PATH
}

func (o *opener) member(m *member) error {
	w, t := o.c.work, o.c.b.Step
	if t.Pty {
		if m.rank == 0 {
			return o.terminal(m)
		}
		return o.nothing(m)
	}
	v := o.values(m)
	var err error
	switch {
	case w.StdIn != "":
		m.files.in, err = o.share(filename.Input(w.StdIn, o.dir, v), func(f *pb.StdFile) (int, error) {
			return openIn(f, m.b.Limits.GetDevices())
		})
	case m.in != nil:
		err = o.pipeIn(m)
	default:
		m.files.in, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	if m.files.out, err = o.out(m, stepwire.Out, "output", w.StdOut, v); err != nil {
		return err
	}
	m.files.err, err = o.out(m, stepwire.Err, "error", w.StdErr, v)
	return err
}

// values returns the values for patterns of file names.
func (o *opener) values(m *member) filename.Values {
	number := func(name string) uint32 {
		n, _ := strconv.ParseUint(getEnv(m.b.Env, name), 10, 32)
		return uint32(n)
	}
	k := o.c.b.Key
	v := filename.Values{JobID: k.GetJobId(), Step: strconv.FormatUint(uint64(k.GetStep()), 10), JobName: o.c.work.JobName,
		User: o.c.work.User, Host: nodeName(o.c.b.Env), NodeIndex: o.c.b.Step.NodeIndex, Task: m.rank}
	if a := number("SLURM_ARRAY_JOB_ID"); a != 0 {
		v.IsArrayTask, v.ArrayJobID, v.ArrayTaskID = true, a, number("SLURM_ARRAY_TASK_ID")
	}
	return v
}

func getEnv(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// share opens a file once for all tasks of this node that name it.
func (o *opener) share(path string, open func(*pb.StdFile) (int, error)) (int, error) {
	if fd, ok := o.shared[path]; ok {
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	}
	fd, err := open(&pb.StdFile{Path: path, Append: o.c.work.OpenMode == pb.OpenAppend})
	if err == nil {
		o.shared[path] = fd
	}
	return fd, err
}

func (o *opener) out(m *member, kind stepwire.Kind, what, pattern string, v filename.Values) (int, error) {
	if pattern != "" {
		return o.share(filename.Output(pattern, o.dir, v), func(f *pb.StdFile) (int, error) {
			return openOut(what, f, "", m.b.Limits.GetDevices())
		})
	}
	if kind == stepwire.Out && o.c.work.Unbuffered {
		return o.tty(m)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	_ = unix.SetNonblock(p[0], true)
	widen(p[0], len(o.c.members))
	s := newStream(kind, m.rank, os.NewFile(uintptr(p[0]), "pipe of a task"))
	m.streams, o.c.streams = append(m.streams, s), append(o.c.streams, s)
	return p[1], nil
}

// tty opens a terminal that passes output on unchanged. It is nobody's controlling terminal.
func (o *opener) tty(m *member) (int, error) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return -1, &fileError{"terminal", "/dev/ptmx", err} // the user may have too many of them
	}
	defer tty.Close()
	s := newStream(stepwire.Out, m.rank, ptmx)
	m.streams, o.c.streams = append(m.streams, s), append(o.c.streams, s)
	conf, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err == nil {
		conf.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, conf)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot set up a terminal: %w", err)
	}
	return unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 3)
}

// A few tasks have pipes of widePipe bytes, so that a task can write while its previous output is sent. The pages count against
// the user's limit of 16384 pages in pipes (fs.pipe-user-pages-soft), so with many tasks the step's own programs would lack them.
const (
	widePipe = 256 << 10
	wideFor  = 8
)

func widen(fd, tasks int) {
	if tasks <= wideFor {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, widePipe)
	}
}

func (o *opener) pipeIn(m *member) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	_ = unix.SetNonblock(p[1], true)
	m.files.in = p[0]
	m.in.file = os.NewFile(uintptr(p[1]), "standard input of a task")
	return nil
}

// nothing opens the files of tasks other than the one with the terminal.
func (o *opener) nothing(m *member) (err error) {
	m.files.in, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		m.files.out, err = unix.FcntlInt(uintptr(m.files.in), unix.F_DUPFD_CLOEXEC, 3)
		m.files.err = m.files.out
	}
	return err
}

// terminal opens the terminal as the user, because it belongs to the user who opens it.
func (o *opener) terminal(m *member) error {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return &fileError{"terminal", "/dev/ptmx", err} // the user may have too many of them
	}
	defer tty.Close()
	o.c.term = ptmx
	if w := o.c.work.Window; w != nil {
		o.c.resize(w)
	}
	fd := int(tty.Fd())
	if m.files.in, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		m.files.out, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		m.files.err, m.setctty = m.files.out, true
	}
	s := newStream(stepwire.Out, m.rank, ptmx)
	m.streams, o.c.streams = append(m.streams, s), append(o.c.streams, s)
	m.in.file = ptmx
	return err
}

// resize gives the terminal the size of srun's.
func (c *crew) resize(w *pb.StepWindow) {
	if c.term == nil || w.Rows > math.MaxUint16 || w.Columns > math.MaxUint16 {
		return
	}
	_ = pty.Setsize(c.term, &pty.Winsize{Rows: uint16(w.Rows), Cols: uint16(w.Columns)})
}

// program returns the path at which execve finds a program: by PATH if its name has no slash, and then in the working directory
// under that name (srun(1), EXECUTABLE PATHS). False: there is none.
func (o *opener) program(name string, env []string) (string, bool) {
	switch {
	case name == "":
		return name, false
	case name[0] == '.' && strings.Contains(name, "/"):
		return o.dir + "/" + name, true
	case strings.Contains(name, "/"):
		return name, true
	}
	path := getEnv(env, "PATH")
	key := name + "\x00" + path
	if at, ok := o.found[key]; ok {
		return at, true
	}
	var st unix.Stat_t
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = o.dir + "/" + dir
		}
		at := dir + "/" + name
		if unix.Stat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
			unix.Faccessat(unix.AT_FDCWD, at, unix.X_OK, unix.AT_EACCESS) == nil {
			o.found[key] = at
			return at, true
		}
	}
	if unix.Stat(o.dir+"/"+name, &st) != nil {
		return name, false
	}
	o.found[key] = name
	return name, true
}
