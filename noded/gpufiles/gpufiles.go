// Package gpufiles writes the files that tell GPU metric exporters which job uses a GPU:
//
//	<job map>/<ordinal>   the ids of its jobs, one per line: dcgm-exporter --hpc-job-mapping-dir; for a GPU with MIG instances, the
//	                      jobs of all instances, and a file for each instance by its UUID
//	<stat>/<ordinal>      "jobid uid" of its job: nvidia_gpu_prometheus_exporter, jobstats, ceems; <stat>/<UUID> for a MIG instance
//
// Ordinals are NVML's, as in nvidia-smi and DCGM: places in the order of PCI addresses among all GPUs that the driver sees,
// including those that gres.conf leaves out. An unused GPU has no file. Files are replaced as a whole, so a reader sees either
// the old or the new one. The directories are updated whenever the running jobs change and when the node daemon starts, so that
// stale files do not outlast a crash.
package gpufiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/noded/isolate"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// The usual directories.
const (
	UsualJobMap = "/run/dcgm-job-map"
	UsualStat   = "/run/gpustat"
)

// Dirs are the directories; empty: none.
type Dirs struct{ JobMap, Stat string }

// Use is one job on this node.
type Use struct {
	Job, UID uint32
	Devices  []*pb.GresDevice
}

// State is the intended content of the directories.
type State struct {
	Dirs    Dirs
	Devices []*pb.Device // the node's devices
	Spare   []*pb.Device // GPUs that are not offered, but count in ordinals
	Uses    []Use
}

// Files returns the content of each file by name.
func (s State) Files() (jobMap, stat map[string]string) {
	jobMap, stat = map[string]string{}, map[string]string{}
	ordinals := ordinals(slices.Concat(s.Devices, s.Spare))
	uses := slices.SortedFunc(slices.Values(s.Uses), func(a, b Use) int { return cmp.Compare(a.Job, b.Job) })
	for _, u := range uses {
		job := strconv.FormatUint(uint64(u.Job), 10) + "\n"
		who := fmt.Sprintf("%d %d\n", u.Job, u.UID)
		for _, d := range isolate.Held(s.Devices, u.Devices) {
			gpu, known := ordinals[address(d)]
			if !known {
				continue
			}
			add(jobMap, gpu, job)
			if d.GetParent() == "" {
				add(stat, gpu, who)
			} else {
				add(jobMap, d.GetId(), job)
				add(stat, d.GetId(), who)
			}
		}
	}
	return jobMap, stat
}

// add skips a line that exists: a job can hold two instances of one GPU.
func add(files map[string]string, name, line string) {
	if !strings.HasSuffix(files[name], line) {
		files[name] += line
	}
}

// address distinguishes GPUs; instances have that of their GPU.
func address(d *pb.Device) string { return cmp.Or(d.GetPci(), d.GetParent(), d.GetId()) }

// ordinals numbers the GPUs that the driver knows.
func ordinals(devices []*pb.Device) map[string]string {
	var all []string
	for _, d := range devices {
		if d.GetName() == "gpu" && isolate.FromDriver(d) && !slices.Contains(all, address(d)) {
			all = append(all, address(d))
		}
	}
	slices.Sort(all)
	out := map[string]string{}
	for i, a := range all {
		out[a] = strconv.Itoa(i)
	}
	return out
}

// Write makes the directories agree with s.
func Write(s State) error {
	jobMap, stat := s.Files()
	return errors.Join(agree(s.Dirs.JobMap, jobMap), agree(s.Dirs.Stat, stat))
}

// agree touches only files named after GPUs in dir, and creates dir only if it needs a file.
func agree(dir string, want map[string]string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		if len(want) == 0 {
			return nil
		}
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = trusted(dir)
	}
	if err != nil {
		return fmt.Errorf("cannot keep files about GPUs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, temporary) || ours(name) && want[name] == "" {
			errs = append(errs, os.Remove(filepath.Join(dir, name)))
		}
	}
	for _, name := range slices.Sorted(keys(want)) {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == want[name] {
			continue
		}
		errs = append(errs, replace(dir, name, want[name]))
	}
	return errors.Join(errs...)
}

// trusted refuses a directory that somebody else has created or replaced by a link: files are written and removed there with the
// daemon's rights.
func trusted(dir string) error {
	var link, st unix.Stat_t
	if err := errors.Join(unix.Lstat(dir, &link), unix.Stat(dir, &st)); err != nil {
		return fmt.Errorf("cannot check %s: %w", dir, err)
	}
	for _, owner := range []uint32{link.Uid, st.Uid} {
		if owner != 0 && owner != uint32(os.Geteuid()) {
			return fmt.Errorf("%s belongs to uid %d: give it to root, or name another directory", dir, owner)
		}
	}
	return nil
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func ours(name string) bool {
	_, err := strconv.ParseUint(name, 10, 16)
	return err == nil || strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-")
}

// temporary is a prefix that no reader takes for a GPU's name.
const temporary = ".sluice-"

func replace(dir, name, content string) error {
	tmp := filepath.Join(dir, temporary+name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write the file of a GPU: %w", err)
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("cannot write the file of a GPU: %w", err)
	}
	return nil
}

// Keeper writes in a goroutine of its own: a directory on a hung file server blocks nobody else.
type Keeper struct {
	next chan State
	log  *slog.Logger
}

// NewKeeper returns a Keeper; Run does the work.
func NewKeeper(log *slog.Logger) *Keeper { return &Keeper{next: make(chan State, 1), log: log} }

// Show sets the intended content from now on. It must not be called from two goroutines at once.
func (k *Keeper) Show(s State) {
	select {
	case <-k.next: // not written yet, and outdated now
	default:
	}
	k.next <- s
}

// Run writes until ctx ends. It removes the files of directories that are no longer in use.
func (k *Keeper) Run(ctx context.Context) {
	var last State
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-k.next:
			err := Write(s)
			for _, gone := range []Dirs{{JobMap: last.Dirs.JobMap}, {Stat: last.Dirs.Stat}} {
				if gone.JobMap != s.Dirs.JobMap && gone.JobMap != "" || gone.Stat != s.Dirs.Stat && gone.Stat != "" {
					err = errors.Join(err, Write(State{Dirs: gone}))
				}
			}
			last = s
			if err != nil && err.Error() != said {
				said = err.Error()
				k.log.Warn("cannot write the files for GPU metric exporters", "err", err)
			}
		}
	}
}
