package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
)

// identity identifies a process permanently: pids are reused.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"` // since boot (proc(5), starttime)
	Boot  string `json:"boot_id"`
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// stat has the relevant fields of /proc/<pid>/stat.
type stat struct {
	state byte
	ppid  int
	flags uint64 // kernel flags: PF_EXITING
	start uint64
}

func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may contain anything: count fields after the last parenthesis.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return stat{}, false
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	return stat{state: f[0][0], ppid: ppid, flags: flags, start: start}, err == nil
}

// identify returns the identity of a running process.
func identify(pid int) (identity, bool) {
	st, ok := readStat(pid)
	return identity{PID: pid, Start: st.start, Boot: bootID()}, ok && st.state != 'Z' && st.state != 'X'
}

// alive reports whether this very process is running. A zombie is not.
func (id identity) alive() bool {
	if id.PID <= 0 || id.Boot != bootID() {
		return false
	}
	now, ok := identify(id.PID)
	return ok && now.Start == id.Start
}

// signal never reaches another process: it opens the pidfd before it checks the identity.
func (id identity) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err == nil:
		defer unix.Close(fd)
		if !id.alive() {
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	case id.alive(): // a kernel without pidfd
		err = unix.Kill(id.PID, sig)
	default:
		return nil
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", id.PID, err)
	}
	return nil
}

// ending reports whether this very process has been killed but is not gone: it keeps its ports until its last thread has left the
// kernel, which can take as long as an fsync. Its first thread may already be a zombie.
func (id identity) ending() bool {
	const exiting = 4 // PF_EXITING
	st, ok := readStat(id.PID)
	switch {
	case id.PID <= 0 || id.Boot != bootID() || !ok || st.start != id.Start || st.state == 'X':
		return false
	case st.state == 'Z':
		tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(id.PID) + "/task")
		return len(tasks) > 1
	}
	return st.flags&exiting != 0 || killPending(id.PID)
}

// killPending reports whether a SIGKILL is pending for a process.
func killPending(pid int) bool {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(status)) {
		key, mask, _ := strings.Cut(line, ":\t")
		if key != "SigPnd" && key != "ShdPnd" {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err == nil && n&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

// settle waits, up to a limit, for processes that are ending.
func settle(ids map[string]identity, within time.Duration) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(pollEvery) {
		ending := false
		for _, id := range ids {
			ending = ending || id.ending()
		}
		if !ending {
			return
		}
	}
}

const pollEvery = 20 * time.Millisecond

// gone waits for the processes to end, and returns those that have not.
func gone(ids []identity, within time.Duration) []identity {
	for deadline := time.Now().Add(within); ; time.Sleep(pollEvery) {
		ids = slices.DeleteFunc(ids, func(id identity) bool { return !id.alive() })
		if len(ids) == 0 || time.Now().After(deadline) {
			return ids
		}
	}
}

// stop ends processes: with SIGTERM, and after the grace period with SIGKILL.
func stop(ids []identity, grace time.Duration) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, id.signal(unix.SIGTERM))
	}
	left := gone(slices.Clone(ids), grace)
	for _, id := range left {
		errs = append(errs, id.signal(unix.SIGKILL))
	}
	for _, id := range gone(left, sweepTimeout) {
		errs = append(errs, fmt.Errorf("cannot end process %d: it survives SIGKILL", id.PID))
	}
	return errors.Join(errs...)
}

// daemonEnv is the environment of a daemon: enough to find programs and to know the time zone, without the other variables of a
// user's shell.
func daemonEnv() []string {
	keep := []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "GOTRACEBACK", "GOCOVERDIR", "SLUICE_FAILPOINT"}
	var env []string
	for _, name := range keep {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// daemon is one process of the cluster.
type daemon struct {
	name string // "ctld", "noded.n1"
	argv []string
	log  string
}

// child is a daemon started by this process.
type child struct {
	daemon
	identity
	exited chan struct{} // closed at its end
	err    error         // the result, once it has ended
}

// start runs a daemon in a session of its own and appends its output to its log.
func (dm daemon) start() (*child, error) {
	out, err := os.OpenFile(dm.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // not world-readable: logs name users' jobs
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %w", dm.name, err)
	}
	defer out.Close()
	cmd := exec.Command(dm.argv[0], dm.argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = out, out, "/", daemonEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := inherit.Start(cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", dm.name, err)
	}
	// The child has not been reaped, so the pid cannot have been reused.
	id, _ := identify(cmd.Process.Pid)
	id.PID = cmd.Process.Pid
	c := &child{daemon: dm, identity: id, exited: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// found is a process of the cluster according to its command line.
type found struct {
	identity
	argv []string
}

func (f found) pretends() bool { return slices.Contains(f.argv[1:], "pretend") }

func (f found) isShim() bool { return slices.Contains(f.argv[1:], "stepd") }

// find returns the processes whose command line contains this directory: daemons and shims, including those without a record. A
// process can set its command line to anything, so it counts only if it runs one of our programs for a user whom this cluster
// trusts.
func (d Dir) find() (all []found) {
	for _, pid := range pids() {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil || len(b) == 0 {
			continue
		}
		argv := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if !d.isOurs(argv) || !d.trusts(pid) {
			continue
		}
		if id, ok := identify(pid); ok {
			all = append(all, found{id, argv})
		}
	}
	return all
}

func (d Dir) isOurs(argv []string) bool {
	// A shim may have been started through /proc/self/exe.
	if base := filepath.Base(argv[0]); base != ctldName && base != nodedName && !slices.Contains(argv, "stepd") {
		return false
	}
	for i, a := range argv[:len(argv)-1] {
		v := argv[i+1]
		if a == "--state" && v == d.state() || a == "--spool" && strings.HasPrefix(v, d.spool("")+"/") {
			return true
		}
	}
	return false
}

// trusts reports whether a process runs a daemon's program, and only as this user or as SlurmUser, who owns the state. All four
// uids are checked, because a set-user-ID program keeps its caller's real uid.
func (d Dir) trusts(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	exe, err := os.Readlink(proc + "/exe")
	if name := filepath.Base(strings.TrimSuffix(exe, " (deleted)")); err != nil || name != ctldName && name != nodedName {
		return false
	}
	trusted := []string{strconv.Itoa(os.Geteuid())}
	var st unix.Stat_t
	if unix.Lstat(d.state(), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		trusted = append(trusted, strconv.FormatUint(uint64(st.Uid), 10))
	}
	status, _ := os.ReadFile(proc + "/status")
	_, uids, _ := strings.Cut(string(status), "\nUid:")
	uids, _, _ = strings.Cut(uids, "\n")
	ids := strings.Fields(uids) // real, effective, saved, file system
	return len(ids) == 4 && !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(trusted, id) })
}

func pids() (all []int) {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// descendants returns children, grandchildren, … of the processes.
func descendants(roots []identity) (all []int) {
	children := map[int][]int{}
	for _, pid := range pids() {
		if st, ok := readStat(pid); ok {
			children[st.ppid] = append(children[st.ppid], pid)
		}
	}
	var queue []int
	for _, r := range roots {
		queue = append(queue, r.PID)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

// tail returns the last lines of a file, for an error message.
func tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 8 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, 2)
	}
	b := make([]byte, most)
	n, _ := f.Read(b)
	all := strings.Split(strings.TrimRight(string(b[:n]), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
