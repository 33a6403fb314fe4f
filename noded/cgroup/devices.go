package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Devices are closed by their numbers, whatever a file is called and whoever makes another: open(2) and mknod(2) fail with EPERM.
//
// Where there is a v2 folder, by a program that is attached to it (bpf.go); it stays for as long as the folder does, whoever
// dies, and holds for every folder below. With v1 alone, by the devices controller: a folder more for each step. Neither can be
// lifted by a step's user: the files are root's, a process cannot leave a group whose parent's files it cannot write, and what
// is attached above holds in a namespace too.
//
// Not used is the package devices of opencontainers/cgroups: in a user namespace it reports success and closes nothing, it lifts this
// process's limit of locked memory, which the steps would inherit, and it can make no exceptions from "all of this major".

// Allowed says what rules say of a device: the last one that matches counts, and what none matches is open.
func Allowed(rules []*pb.DeviceRule, block bool, major, minor int64) bool {
	for _, r := range slices.Backward(rules) {
		if r.Block == block && r.Major == major && (r.Minor < 0 || r.Minor == minor) {
			return r.Allow
		}
	}
	return true
}

// Device tells whether a file is a device, and which.
func Device(st *unix.Stat_t) (block bool, major, minor int64, ok bool) {
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return false, 0, 0, false
	}
	return kind == unix.S_IFBLK, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)), true
}

// Devices is nil when this machine can close devices, else why it cannot. The first call tries it.
func (r *linuxRoot) Devices() error {
	r.tryDevices.Do(func() {
		var err error
		if r.layout != Legacy {
			if err = tryFilter(r.track); err == nil {
				r.filter = true
				return
			}
		}
		if r.devices == "" {
			r.noDevices = errors.Join(err,
				errors.New("cannot restrict jobs' access to devices: there is no devices controller of cgroup v1 here"))
		} else if werr := write(r.devices, "devices.deny", noDevice); werr != nil {
			r.noDevices = errors.Join(err, fmt.Errorf("cannot restrict jobs' access to devices: %w", werr))
		}
	})
	return r.noDevices
}

// noDevice is the last number that there can be: denying it tries whether anything can be denied.
const noDevice = "c 4095:1048575 rwm"

// closeDevices applies rules, if there are any. It fails rather than leave anything open.
func (g *group) closeDevices(name string, rules []*pb.DeviceRule) error {
	if len(rules) == 0 {
		g.joinV1(g.root.devices, allocation(name))
		return nil
	}
	if err := g.root.Devices(); err != nil {
		return err
	}
	if g.root.filter {
		return attachFilter(g.dir, rules)
	}
	dir, err := g.mkV1(g.root.devices, name)
	if err != nil {
		return err
	}
	if err := writeLines(dir, translate(rules)); err != nil {
		return err
	}
	list, err := os.ReadFile(dir + "/devices.list")
	if err != nil {
		return fmt.Errorf("cannot see whether devices are closed: %w", err)
	}
	return stillOpen(string(list), rules)
}

func writeLines(dir string, l lines) error {
	file := "devices.deny"
	if l.only {
		file = "devices.allow"
		if err := write(dir, "devices.deny", "a"); err != nil {
			return fmt.Errorf("cannot close all devices: %w", err)
		}
	}
	fd, err := unix.Open(dir+"/"+file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir + "/" + file, Err: err}
	}
	defer unix.Close(fd)
	for _, line := range l.lines {
		_, err := unix.Write(fd, []byte(line+" rwm")) // one at a time: the kernel takes no more
		if l.only && errors.Is(err, unix.EPERM) {
			continue // in a container: what the group above does not give is not there to be given on
		}
		if err != nil {
			return fmt.Errorf("cannot open or close device %s: %w", line, err)
		}
	}
	return nil
}

// stillOpen reads devices.list. In a container, where the group is not "everything but" and has only what the one above gave it, the
// kernel takes denials that begin inside of a wildcard, and does nothing.
func stillOpen(list string, rules []*pb.DeviceRule) error {
	if strings.HasPrefix(list, "a ") {
		return nil
	}
	for line := range strings.Lines(list) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		which, _, _ := strings.Cut(rest, " ")
		major, minor, _ := strings.Cut(which, ":")
		for _, r := range rules {
			if !r.Allow && (kind == "b") == r.Block && same(major, r.Major) && (r.Minor < 0 || same(minor, r.Minor)) &&
				!openHere(rules, r, minor) {
				return fmt.Errorf(
					"cannot close device %s: the cgroup above gives %q as a whole (a container?); use cgroup v2, or give the container "+
						"the devices one by one",
					number{r.Block, r.Major, r.Minor}, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

func same(field string, n int64) bool { return field == "*" || field == strconv.FormatInt(n, 10) }

// openHere: what the list gives is what the rules give too.
func openHere(rules []*pb.DeviceRule, r *pb.DeviceRule, minor string) bool {
	n, err := strconv.ParseInt(minor, 10, 64)
	return err == nil && Allowed(rules, r.Block, r.Major, n)
}

// lines are what is written to files of a fresh group of cgroup v1.
type lines struct {
	only  bool     // everything is closed first, and the lines open; else everything is open, and they close
	lines []string // without the kinds of access
}

// translate makes lines of rules. The kernel's v1 controller knows "everything but these" and "only these", with whole major
// numbers in both, and no exceptions from exceptions. Where a major is closed but for some of its minors, "only these" it has to be:
// all other majors, which are 512 at most (Linux, CHRDEV_MAJOR_MAX).
func translate(rules []*pb.DeviceRule) (l lines) {
	for _, r := range rules {
		if r.Allow && !Allowed(rules, r.Block, r.Major, otherMinor) && Allowed(rules, r.Block, r.Major, r.Minor) {
			l.only = true
		}
	}
	done := map[number]bool{}
	add := func(n number) {
		if !done[n] && !done[number{n.block, n.major, -1}] {
			done[n] = true
			l.lines = append(l.lines, n.String())
		}
	}
	if l.only {
		for _, block := range []bool{false, true} {
			openMajors(rules, block, add)
		}
		return l
	}
	for _, r := range rules {
		if !Allowed(rules, r.Block, r.Major, otherMinor) {
			add(number{r.Block, r.Major, -1})
		}
	}
	for _, r := range rules {
		if r.Minor >= 0 && !Allowed(rules, r.Block, r.Major, r.Minor) {
			add(number{r.Block, r.Major, r.Minor})
		}
	}
	return l
}

const (
	otherMinor = 1 << 30 // one that no rule names
	majors     = 512
	// minorsListed is for a major that is open but for some minors, beside another that is closed but for some: its minors are
	// opened one by one, so far.
	minorsListed = 1024
)

// openMajors lists what is open of one kind of device.
func openMajors(rules []*pb.DeviceRule, block bool, add func(number)) {
	of := map[int64][]*pb.DeviceRule{}
	for _, r := range rules {
		if r.Block == block {
			of[r.Major] = append(of[r.Major], r)
		}
	}
	if len(of) == 0 {
		add(number{block, -1, -1})
		return
	}
	for major := range int64(majors) {
		named := of[major]
		open := Allowed(rules, block, major, otherMinor)
		switch {
		case open && !slices.ContainsFunc(named, func(r *pb.DeviceRule) bool {
			return r.Minor >= 0 &&
				!Allowed(rules, block, major, r.Minor)
		}):
			add(number{block, major, -1})
		case open:
			for minor := range int64(minorsListed) {
				if Allowed(rules, block, major, minor) {
					add(number{block, major, minor})
				}
			}
		default:
			for _, r := range named {
				if r.Minor >= 0 && Allowed(rules, block, major, r.Minor) {
					add(number{block, major, r.Minor})
				}
			}
		}
	}
}

// number is a device as the kernel knows it; minor -1 is all of the major, major -1 all there are.
type number struct {
	block        bool
	major, minor int64
}

func (n number) String() string {
	kind, major, minor := "c ", "*", "*"
	if n.block {
		kind = "b "
	}
	if n.minor >= 0 {
		minor = strconv.FormatInt(n.minor, 10)
	}
	if n.major >= 0 {
		major = strconv.FormatInt(n.major, 10)
	}
	return kind + major + ":" + minor
}
