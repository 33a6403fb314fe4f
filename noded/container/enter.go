package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// jobs are the variables that describe the job, or prefixes ending in an underscore: no image overrides them.
var jobs = []string{"SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI", "PMIX_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
	"ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "HOME", "USER", "LOGNAME", "TMPDIR", "TERM", "HOSTNAME"}

// environment returns a task's environment: the job's, overridden by the image's variables, except those in keep
// (--container-env).
func environment(job, image, keep []string, dir string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range job {
		name, _, _ := strings.Cut(kv, "=")
		if _, has := at[name]; !has {
			at[name] = len(out)
			out = append(out, kv)
		}
	}
	set := func(kv string, over bool) {
		name, _, _ := strings.Cut(kv, "=")
		if i, has := at[name]; !has {
			at[name] = len(out)
			out = append(out, kv)
		} else if over {
			out[i] = kv
		}
	}
	for _, kv := range image {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "container" || name == "HOSTNAME" || name == "HOME" {
			continue
		}
		over := true
		for _, k := range keep {
			over = over && k != name
		}
		for _, j := range jobs {
			over = over && name != j && (!strings.HasSuffix(j, "_") || !strings.HasPrefix(name, j))
		}
		set(kv, over)
	}
	set("PWD="+dir, true)
	return out
}

// ExecError reports a program that cannot be executed in the container.
type ExecError struct {
	Path  string
	Errno syscall.Errno
}

func (e *ExecError) Error() string { return e.Path + ": " + e.Errno.Error() }

// Enter becomes the program argv in the container. It returns only on failure.
func Enter(j *Job, argv, env []string) error {
	st := &state{}
	if err := readJSON(j.statePath(), st); err != nil {
		return fmt.Errorf("cannot enter the container: %w", err)
	}
	if !st.By.alive() {
		return errors.New("cannot enter the container: it has ended")
	}
	root, err := unix.Open(st.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot enter the container: %w", err)
	}
	dir := st.Dir
	if j.Spec.Workdir != "" {
		dir = j.Spec.Workdir
	}
	dir = path.Clean("/" + dir)
	wd, err := within(root, dir, unix.O_DIRECTORY)
	if err == nil {
		err = unix.Fchdir(wd)
	}
	if err != nil {
		return fmt.Errorf("couldn't chdir to `%s' in the container: %s", dir, sentence(err))
	}
	env = environment(env, st.Env, j.Spec.Env, dir)
	program, errno := find(root, argv[0], dir, env)
	if errno != 0 {
		return &ExecError{argv[0], errno}
	}
	nsenter := "/usr/bin/nsenter"
	args := []string{nsenter, "--user=" + st.User, "--mount=" + st.Mount, "--root=" + st.Root, "--wd=.", "--preserve-credentials", "--",
		program}
	err = syscall.Exec(nsenter, append(args, argv[1:]...), env)
	return fmt.Errorf("cannot execute %s (package util-linux): %w", nsenter, err)
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// within opens a path as the container's programs see it: links stay inside it.
func within(root int, path string, flags uint64) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(root, path, how)
		if err != unix.EINTR && err != unix.EAGAIN { // something was renamed meanwhile
			return fd, err
		}
	}
}

// find returns the path where execvp(3) would find a program in the container.
func find(root int, name, dir string, env []string) (string, syscall.Errno) {
	if name == "" {
		return "", unix.ENOENT
	}
	if strings.Contains(name, "/") {
		at := name
		if name[0] != '/' {
			at = path.Join(dir, name)
		}
		return at, executable(root, at)
	}
	var list string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			list = v
		}
	}
	why := unix.ENOENT
	for _, folder := range strings.Split(list, ":") {
		at := path.Join(folder, name)
		if !path.IsAbs(at) {
			at = path.Join(dir, at)
		}
		switch errno := executable(root, at); errno {
		case 0:
			return at, 0
		case unix.EACCES:
			why = errno
		}
	}
	return "", why
}

func executable(root int, at string) syscall.Errno {
	fd, err := within(root, at, 0)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		return errno
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return unix.EACCES
	}
	return 0
}

// Arg is the subcommand of the shim's program that calls Main.
const Arg = "container"

// pinArg is the argument of the process that holds namespaces, on descriptors 3 to 5.
const pinArg = "pin"

// EndArg is the argument for the cleanup after a task in a bundle's container.
const EndArg = "end"

// Complaint is the prefix of the line that tells why there is no container.
const Complaint = "slurmstepd: error: container: "

// Main runs the shim's program as the user in place of a task: "setup JOB", "enter JOB PROGRAM ARGUMENT…", or "end JOB PID".
func Main(args []string) int {
	if len(args) < 2 {
		return 2
	}
	if args[0] == pinArg {
		for {
			time.Sleep(time.Hour)
		}
	}
	j, err := Decode(args[1])
	switch {
	case err != nil:
	case args[0] == "setup" && j.Runtime != nil:
		err = checkBundle(j, os.Environ())
	case args[0] == "enter" && len(args) > 2 && j.Runtime != nil:
		err = runBundle(j, args[2:], os.Environ())
	case args[0] == EndArg && len(args) > 2 && j.Runtime != nil:
		pid, _ := strconv.Atoi(args[2])
		err = End(j, pid, os.Environ())
	case args[0] == "setup":
		err = Setup(j, os.Environ(), os.Stderr)
	case args[0] == "enter" && len(args) > 2:
		err = Enter(j, args[2:], os.Environ())
	default:
		return 2
	}
	var xe *ExecError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &xe): // as for a program that cannot be executed without a container
		fmt.Fprintf(os.Stderr, "slurmstepd: error: execve(): %s: %s\n", xe.Path, sentence(xe.Errno))
		return int(xe.Errno)
	}
	fmt.Fprintln(os.Stderr, Complaint+err.Error())
	return 1
}
