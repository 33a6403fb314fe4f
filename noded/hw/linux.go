package hw

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Linux reads /proc and /sys. The zero value is ready; Root is another root directory for tests.
type Linux struct {
	Root string
	// Allowed returns the processors that this process may run on; nil asks the kernel. A daemon confined to a part of the
	// machine (a container, a systemd slice) offers only those.
	Allowed func() (map[int]bool, error)
}

// Inventory implements Prober.
func (l Linux) Inventory() (Inventory, error) {
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var inv Inventory
	var err error
	inv.Topology, err = l.topology()
	keep(err)
	mem, err := l.meminfo("MemTotal")
	keep(err)
	inv.MemoryMiB = mem
	id, err := os.ReadFile(l.path("/proc/sys/kernel/random/boot_id"))
	keep(err)
	inv.BootID = strings.TrimSpace(string(id))
	inv.BootNS, err = l.bootTime()
	keep(err)
	inv.TmpMiB, err = diskMiB(l.path("/tmp"))
	keep(err)
	var u unix.Utsname
	keep(unix.Uname(&u))
	text := func(b []byte) string { return unix.ByteSliceToString(b) }
	inv.OS = text(u.Sysname[:]) + " " + text(u.Release[:]) + " " + text(u.Version[:])
	inv.Arch = text(u.Machine[:])
	inv.Hostname, _, _ = strings.Cut(text(u.Nodename[:]), ".")
	if len(errs) > 0 {
		return inv, fmt.Errorf("cannot read this machine's hardware: %w", errors.Join(errs...))
	}
	return inv, nil
}

// Load implements Prober.
func (l Linux) Load() (Load, error) {
	b, err := os.ReadFile(l.path("/proc/loadavg"))
	if err != nil {
		return Load{}, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	cpu, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return Load{}, fmt.Errorf("cannot read /proc/loadavg: %w", err)
	}
	free, err := l.meminfo("MemAvailable")
	return Load{CPU: cpu, FreeMemMiB: free}, err
}

func (l Linux) path(p string) string { return filepath.Join("/", l.Root, p) }

func (l Linux) topology() (Topology, error) {
	raw, err := l.sysfs()
	if err != nil || len(raw) == 0 {
		raw, err = l.cpuinfo()
	}
	if err != nil {
		return nil, err
	}
	allowed := l.Allowed
	if allowed == nil {
		allowed = affinity
	}
	may, err := allowed()
	if err != nil {
		return nil, err
	}
	kept := raw[:0]
	for _, r := range raw {
		if may == nil || may[r.id] {
			kept = append(kept, r)
		}
	}
	if len(kept) == 0 {
		return nil, errors.New("no processor found in /sys/devices/system/cpu or /proc/cpuinfo that this process may use")
	}
	return build(kept), nil
}

// sysfs reads /sys/devices/system/cpu. Sibling lists identify a core better than core_id, which repeats on each die.
func (l Linux) sysfs() ([]rawCPU, error) {
	dir := l.path("/sys/devices/system/cpu")
	online, err := os.ReadFile(dir + "/online")
	if err != nil {
		return nil, err
	}
	ids, err := ParseList(string(online))
	if err != nil {
		return nil, err
	}
	raw := make([]rawCPU, 0, len(ids))
	for _, id := range ids {
		top := fmt.Sprintf("%s/cpu%d/topology/", dir, id)
		socket, err1 := os.ReadFile(top + "physical_package_id")
		core, err2 := os.ReadFile(top + "thread_siblings_list")
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		raw = append(raw, rawCPU{id, strings.TrimSpace(string(socket)), strings.TrimSpace(string(core))})
	}
	return raw, nil
}

// cpuinfo reads /proc/cpuinfo; a processor without "core id" (virtual machines, ARM) counts as a core.
func (l Linux) cpuinfo() ([]rawCPU, error) {
	f, err := os.Open(l.path("/proc/cpuinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var raw []rawCPU
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20) // the flags line is long
	for sc.Scan() && len(raw) < maxCPUs {
		key, value, _ := strings.Cut(sc.Text(), ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if key == "processor" {
			id, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("cannot read /proc/cpuinfo: processor %q", value)
			}
			raw = append(raw, rawCPU{id, "0", "cpu" + value})
		}
		if len(raw) == 0 {
			continue
		}
		switch last := &raw[len(raw)-1]; key {
		case "physical id":
			last.socket = value
		case "core id":
			last.core = value
		}
	}
	return raw, sc.Err()
}

// affinity returns the processors that this process may run on.
func affinity() (map[int]bool, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cannot ask for the CPU affinity: %w", err)
	}
	may := map[int]bool{}
	for i := range 1024 { // the size of unix.CPUSet
		if set.IsSet(i) {
			may[i] = true
		}
	}
	return may, nil
}

// meminfo returns one line of /proc/meminfo in MiB, rounded down as in slurmd -C.
func (l Linux) meminfo(key string) (uint64, error) {
	b, err := os.ReadFile(l.path("/proc/meminfo"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == key+":" {
			kib, err := strconv.ParseUint(f[1], 10, 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/meminfo", key)
}

func (l Linux) bootTime() (int64, error) {
	b, err := os.ReadFile(l.path("/proc/stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "btime "); ok {
			sec, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
			return sec * 1e9, err
		}
	}
	return 0, errors.New("no btime in /proc/stat")
}

func diskMiB(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("cannot read the size of %s: %w", dir, err)
	}
	return st.Blocks * uint64(st.Bsize) >> 20, nil
}
