package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cgroupTop is the cgroup below which node daemons keep theirs: sluice/<cluster>/<node> for jobs, and <node>.shims beside it.
const cgroupTop = "sluice"

// cgroupFolders returns a node's cgroups in each mounted hierarchy that has them.
func cgroupFolders(cluster, node string) (dirs []string) {
	for _, mount := range cgroupMounts() {
		for _, name := range []string{node, node + ".shims"} {
			dir := filepath.Join(mount, cgroupTop, cluster, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func cgroupMounts() (mounts []string) {
	b, _ := os.ReadFile("/proc/self/mounts")
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			mounts = append(mounts, unescapeMount(f[1]))
		}
	}
	return mounts
}

// unescapeMount decodes the \040 that proc(5) writes for a blank.
func unescapeMount(s string) string {
	for _, c := range []byte{' ', '\t', '\n', '\\'} {
		s = strings.ReplaceAll(s, fmt.Sprintf("\\%03o", c), string(c))
	}
	return s
}

// cgroupPids returns the processes in these cgroups and below.
func cgroupPids(dirs []string) (all []int) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil
			}
			b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					all = append(all, pid)
				}
			}
			return nil
		})
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// foreignShim reports whether a process is the shim of a node daemon with another spool. Processes of jobs may claim to be one.
func foreignShim(pid int, d Dir) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	argv := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	return slices.Contains(argv, "stepd") && slices.Contains(argv, "--spool") && !d.isOurs(argv) && d.trusts(pid)
}

// sweepTimeout bounds how long killed processes may take to be gone.
const sweepTimeout = time.Minute

// sweep kills the leftovers of the nodes' jobs that no daemon supervises any more: processes in their cgroups, shims and their
// descendants; then it removes the cgroups. killed is the number of jobs' processes.
func sweep(d Dir, cluster string, nodes []string) (killed int, err error) {
	all := map[int]bool{}
	for deadline := time.Now().Add(sweepTimeout); ; time.Sleep(pollEvery) {
		left, jobs := sweepOnce(d, cluster, nodes)
		for _, pid := range jobs {
			all[pid] = true
		}
		if len(left) == 0 {
			return len(all), nil
		}
		if time.Now().After(deadline) {
			return len(all), fmt.Errorf("cannot remove all leftovers of the cluster in %s: still there: %s", d, strings.Join(left, ", "))
		}
	}
}

// sweepOnce returns what is left, and the jobs' processes among that.
func sweepOnce(d Dir, cluster string, nodes []string) (left []string, jobs []int) {
	shims := d.shimsOf(nodes)
	isShim := map[int]bool{}
	jobs = descendants(shims)
	for _, s := range shims { // before their jobs: a shim that sees its job killed would record that as the job's own end
		kill([]int{s.PID})
		isShim[s.PID] = true
		left = append(left, "process "+strconv.Itoa(s.PID))
	}
	kill(jobs)
	for _, node := range nodes {
		dirs := cgroupFolders(cluster, node)
		if slices.ContainsFunc(cgroupPids(dirs), func(pid int) bool { return foreignShim(pid, d) }) {
			continue // the running node of another cluster, with the same names
		}
		for _, dir := range dirs {
			thaw(dir)
			for _, pid := range cgroupPids([]string{dir}) {
				kill([]int{pid})
				left = append(left, "process "+strconv.Itoa(pid))
				if !isShim[pid] {
					jobs = append(jobs, pid)
				}
			}
			if !removeTree(dir) {
				left = append(left, "cgroup "+dir)
			}
		}
	}
	for _, mount := range cgroupMounts() { // the parents, if no other node uses them
		_ = os.Remove(filepath.Join(mount, cgroupTop, cluster))
		_ = os.Remove(filepath.Join(mount, cgroupTop))
	}
	return left, jobs
}

// shimsOf returns the shims of these nodes.
func (d Dir) shimsOf(nodes []string) (shims []identity) {
	for _, f := range d.find() {
		i := slices.Index(f.argv, "--spool")
		if f.isShim() && i+1 < len(f.argv) && slices.Contains(nodes, filepath.Base(f.argv[i+1])) {
			shims = append(shims, f.identity)
		}
	}
	return shims
}

// thaw lets frozen processes run so that they can die (cgroup v1), in the cgroup and below.
func thaw(dir string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			writeExisting(filepath.Join(path, "cgroup.kill"), "1")
			writeExisting(filepath.Join(path, "cgroup.freeze"), "0")
			writeExisting(filepath.Join(path, "freezer.state"), "THAWED")
		}
		return nil
	})
}

func writeExisting(path, value string) {
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString(value)
		f.Close()
	}
}

// removeTree removes a cgroup and those below it, and reports whether it is gone.
func removeTree(dir string) bool {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, path := range slices.Backward(dirs) {
		_ = os.Remove(path)
	}
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}
