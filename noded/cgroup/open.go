package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// shelter is the suffix of the directory for the shims' group. It is beside the node's directory, so that the limit of processes
// for all jobs does not count the shims.
const shelter = ".shims"

// linuxRoot is the Root of the three cgroup layouts.
type linuxRoot struct {
	layout Layout
	// track is the directory (below the v2 mount, or below the v1 freezer) whose children hold the processes.
	track string
	// unit is the directory of the hierarchy by which an init system tracks units, if that is not track; may be empty.
	unit string
	// memory, pids and cpuset are v1 directories, or equal to track in the unified layout; empty: not available.
	memory, pids, cpuset string
	devices              string // v1 directory; empty: not available
	name                 string // as given to Open
	swap                 bool   // memory+swap can be limited
	cpus                 string // CPUs that exist here, kernel list format
	kill                 bool   // cgroup.kill works (Linux 5.14)
	notes                []string
	reached              sync.Once // near has its directories
	foundHome            sync.Once
	home                 map[string]string

	tryDevices sync.Once
	filter     bool  // devices are closed by a program, not by the v1 controller
	noDevices  error // why devices cannot be closed
}

// The values of CgroupPlugin in cgroup.conf(5). Empty means PluginAuto.
const (
	PluginAuto     = "autodetect"
	PluginV1       = "cgroup/v1"
	PluginV2       = "cgroup/v2"
	PluginDisabled = "disabled"
)

// Open makes the directory name ("sluice/<cluster>/<node>") in each hierarchy to use: the plugin's, or those it finds. If none is
// writable it returns the process-tree fallback, whose Notes tell why. Opening twice, also from two processes, is fine.
func Open(name, plugin string) (Root, error) {
	if name == "" || filepath.IsAbs(name) || filepath.Clean(name) != name || strings.HasPrefix(name, "..") {
		return nil, fmt.Errorf("cannot use cgroup root %q: it must be a clean relative path such as sluice/cluster/node", name)
	}
	var r *linuxRoot
	var err error
	switch plugin {
	case PluginDisabled:
		err = errors.New("CgroupPlugin=disabled in cgroup.conf")
	case PluginV1:
		r, err = openLegacy(name)
	case PluginV2:
		mount := unifiedMount
		if cgroups.IsCgroup2HybridMode() {
			mount = hybridMount
		}
		r, err = openUnified(mount, name)
	case PluginAuto, "":
		r, err = openFound(name)
	default:
		return nil, fmt.Errorf("cannot use CgroupPlugin=%s: want autodetect, cgroup/v1, cgroup/v2 or disabled", plugin)
	}
	if err != nil {
		return newTree(err), nil
	}
	r.name = name
	r.boundJobs()
	return r, nil
}

func openFound(name string) (*linuxRoot, error) {
	switch {
	case cgroups.IsCgroup2UnifiedMode():
		return openUnified(unifiedMount, name)
	case cgroups.IsCgroup2HybridMode():
		return openHybrid(name)
	}
	return openLegacy(name)
}

const (
	unifiedMount = "/sys/fs/cgroup"
	hybridMount  = "/sys/fs/cgroup/unified"
)

// openUnified enables the controllers down to name: each level must enable them before its children can have them.
func openUnified(mount, name string) (*linuxRoot, error) {
	r := &linuxRoot{layout: Unified, track: filepath.Join(mount, name)}
	if !exists(mount, "cgroup.controllers") {
		return nil, fmt.Errorf("cannot use cgroup v2: it is not mounted on %s", mount)
	}
	if err := mkdirAll(r.track); err != nil {
		return nil, fmt.Errorf("cannot make cgroup %s: %w", r.track, err)
	}
	for dir := mount; ; {
		r.enable(dir)
		if dir == r.track {
			break
		}
		rest := strings.TrimPrefix(r.track, dir+"/")
		dir = filepath.Join(dir, strings.SplitN(rest, "/", 2)[0])
	}
	have := readFields(r.track, "cgroup.subtree_control")
	pick := func(controller string) string {
		if slices.Contains(have, controller) {
			return r.track
		}
		r.notes = append(r.notes, "cgroup controller "+controller+" is not delegated to "+r.track+": its limits are not applied")
		return ""
	}
	r.memory, r.pids, r.cpuset = pick("memory"), pick("pids"), pick("cpuset")
	r.swap = r.memory != ""
	r.cpus = readTrim(r.track, "cpuset.cpus.effective")
	r.kill = exists(r.track, "cgroup.kill")
	return r, nil
}

// enable enables what it can: a level that refuses (it holds processes, or a container's owner keeps it) shows in the result.
func (r *linuxRoot) enable(dir string) {
	have := readFields(dir, "cgroup.subtree_control")
	for _, c := range []string{"cpuset", "cpu", "memory", "pids"} {
		if !slices.Contains(have, c) {
			_ = cgroups.WriteFile(dir, "cgroup.subtree_control", "+"+c)
		}
	}
}

func openHybrid(name string) (*linuxRoot, error) {
	r := &linuxRoot{layout: Hybrid, track: filepath.Join(hybridMount, name)}
	if err := mkdirAll(r.track); err != nil {
		return openLegacy(name)
	}
	r.kill = exists(r.track, "cgroup.kill")
	r.addV1(name)
	return r, nil
}

func openLegacy(name string) (*linuxRoot, error) {
	mount, err := cgroups.FindCgroupMountpoint("", "freezer")
	if err != nil {
		return nil, fmt.Errorf("cannot find a cgroup hierarchy to track processes with (neither v2 nor the v1 freezer): %w", err)
	}
	r := &linuxRoot{layout: Legacy, track: filepath.Join(mount, name)}
	if err := mkdirAll(r.track); err != nil {
		return nil, fmt.Errorf("cannot make cgroup %s: %w", r.track, err)
	}
	r.addV1(name)
	return r, nil
}

func (r *linuxRoot) addV1(name string) {
	pick := func(controller string) string {
		mount, err := cgroups.FindCgroupMountpoint("", controller)
		if err == nil {
			dir := filepath.Join(mount, name)
			if err = mkdirAll(dir); err == nil {
				return dir
			}
		}
		r.notes = append(r.notes, fmt.Sprintf("cgroup v1 controller %s cannot be used, its limits are not applied: %v", controller, err))
		return ""
	}
	r.memory, r.pids, r.cpuset = pick("memory"), pick("pids"), pick("cpuset")
	if r.memory != "" {
		r.swap = exists(r.memory, "memory.memsw.limit_in_bytes")
	}
	if r.cpuset != "" {
		r.inheritCpuset(name)
	}
	if mount, err := cgroups.FindCgroupMountpoint("", "devices"); err == nil && mkdirAll(filepath.Join(mount, name)) == nil {
		r.devices = filepath.Join(mount, name)
	}
	if mount, err := cgroups.FindCgroupMountpoint("", "name=systemd"); err == nil {
		r.unit = filepath.Join(mount, name)
	}
}

// inheritCpuset fills the cpuset of each level below the mount. The kernel makes them empty, and no process can enter an empty
// cpuset.
func (r *linuxRoot) inheritCpuset(name string) {
	levels := strings.Split(name, "/")
	top := r.cpuset[:len(r.cpuset)-len(name)-1]
	for dir, i := top, 0; i < len(levels); i++ {
		next := filepath.Join(dir, levels[i])
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if readTrim(next, f) != "" {
				continue
			}
			if err := cgroups.WriteFile(next, f, readTrim(dir, f)); err != nil {
				r.notes = append(r.notes, "cpuset limits are not applied: "+err.Error())
				r.cpuset = ""
				return
			}
		}
		dir = next
	}
	r.cpus = readTrim(r.cpuset, "cpuset.cpus")
}

func (r *linuxRoot) Layout() Layout  { return r.layout }
func (r *linuxRoot) Notes() []string { return r.notes }

// Shelter does not change limits: it only moves the process out of reach of an init system or a step's kill.
func (r *linuxRoot) Shelter(pid int) error {
	var errs []error
	for _, dir := range []string{r.track, r.unit} {
		if dir == "" {
			continue
		}
		dir += shelter
		if err := mkdirAll(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, cgroups.WriteCgroupProc(dir, pid))
	}
	return errors.Join(errs...)
}

// Tidy stops at the first directory of each hierarchy that is still in use, for instance by another node of the cluster.
func (r *linuxRoot) Tidy() {
	depth := strings.Count(r.name, "/") + 1
	for _, dir := range []string{r.memory, r.pids, r.cpuset, r.devices, r.unit, r.track} {
		if dir == "" {
			continue
		}
		removeSoon(dir + shelter)
		for range depth {
			if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT { // the init system's hierarchy has only the shims' group
				break
			}
			dir = filepath.Dir(dir)
		}
	}
}

// removeSoon waits for exiting shims, which takes a moment after they have closed their connections.
func removeSoon(dir string) {
	for range 1000 {
		if err := unix.Rmdir(dir); err != unix.EBUSY {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// mkdirAll retries if another node's Tidy removes a common parent meanwhile.
func mkdirAll(dir string) (err error) {
	for range 20 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

func readTrim(dir, file string) string {
	s, err := readSmall(dir, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(s)
}

func readFields(dir, file string) []string { return strings.Fields(readTrim(dir, file)) }
