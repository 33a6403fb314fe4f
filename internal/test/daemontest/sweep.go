package daemontest

import (
	"bytes"
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
)

// Sweep removes everything that belongs to a directory and to clusters whose name has this prefix: processes, mounts, cgroups,
// files.
func Sweep(dir, clusters string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		left := ProcessesOf(dir)
		for _, g := range GroupsOf(clusters) {
			left = append(left, ProcsIn(g)...)
		}
		left = slices.DeleteFunc(left, func(pid int) bool { return pid == os.Getpid() || pid == os.Getppid() })
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, m := range mountsBelow(dir) {
		_ = exec.Command("umount", "-l", m).Run()
	}
	removeGroups(clusters)
	_ = os.RemoveAll(dir)
}

// ProcessesOf returns the processes whose command line contains the directory: daemons, shims, batch scripts.
func ProcessesOf(dir string) (pids []int) {
	for _, pid := range AllProcesses() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte(dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ProcessesOfUser returns the running processes of uid. A process without memory has ended: the kernel shows it for a moment after
// its last instruction.
func ProcessesOfUser(uid int) (pids []int) {
	for _, pid := range AllProcesses() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if bytes.Contains(text, fmt.Appendf(nil, "\nUid:\t%d\t", uid)) && bytes.Contains(text, []byte("\nVmSize:")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// AllProcesses returns the processes of this machine.
func AllProcesses() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// CommandLine returns the command line of a process.
func CommandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
}

// groupRoots returns the cgroups of all clusters on this machine, one per hierarchy.
func groupRoots() []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/sluice")
	if _, err := os.Stat("/sys/fs/cgroup/sluice"); err == nil {
		found = append(found, "/sys/fs/cgroup/sluice")
	}
	return found
}

// GroupsOf returns the cgroups of the clusters whose name has this prefix, and all below them, deepest first.
func GroupsOf(prefix string) (dirs []string) {
	for _, root := range groupRoots() {
		tops, _ := filepath.Glob(filepath.Join(root, prefix+"*"))
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
		}
	}
	slices.Reverse(dirs)
	return dirs
}

// ProcsIn returns the processes in a cgroup.
func ProcsIn(group string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeGroups removes the cgroups of clusters, and their parent if it is empty then.
func removeGroups(prefix string) {
	for _, g := range append(GroupsOf(prefix), groupRoots()...) {
		_ = unix.Rmdir(g)
	}
}

func mountsBelow(dir string) (points []string) {
	text, _ := os.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			points = append(points, f[1])
		}
	}
	slices.Reverse(points)
	return points
}
