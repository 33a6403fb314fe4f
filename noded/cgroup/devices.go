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

// Devices are closed by number, whatever their files are called and whoever creates another file: open(2) and mknod(2) fail with
// EPERM.
//
// With a v2 directory, an attached program does it (bpf.go). It lasts as long as the directory, whichever process dies, and
// applies to every directory below. With v1 alone the devices controller does it, with one more directory for each step. A step's
// user can undo neither: the files are root's, a process cannot leave a group if it cannot write the parent's files, and a
// program attached above also applies in a namespace.
//
// Rejected: package devices of opencontainers/cgroups. In a user namespace it reports success and closes nothing, it raises this
// process's limit of locked memory, which the steps would inherit, and it cannot make exceptions from "all of this major".

// Allowed applies the rules to a device: the last matching rule decides, and a device without one is open.
func Allowed(rules []*pb.DeviceRule, block bool, major, minor int64) bool {
	for _, r := range slices.Backward(rules) {
		if r.Block == block && r.Major == major && (r.Minor < 0 || r.Minor == minor) {
			return r.Allow
		}
	}
	return true
}

// Device reports whether a file is a device, and which.
func Device(st *unix.Stat_t) (block bool, major, minor int64, ok bool) {
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return false, 0, 0, false
	}
	return kind == unix.S_IFBLK, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)), true
}

// Devices returns nil if this machine can close devices, else why not. The first call tries it.
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

// noDevice is the highest possible device number: denying it tests whether denials work.
const noDevice = "c 4095:1048575 rwm"

// closeDevices applies the rules, if any. It fails rather than leave anything open.
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
		_, err := unix.Write(fd, []byte(line+" rwm")) // one at a time, as the kernel requires
		if l.only && errors.Is(err, unix.EPERM) {
			continue // in a container: a device that the group above lacks cannot be opened
		}
		if err != nil {
			return fmt.Errorf("cannot open or close device %s: %w", line, err)
		}
	}
	return nil
}

// stillOpen checks devices.list for devices that should be closed. In a container, where the group has a list of what the group
// above allows, the kernel accepts denials inside a wildcard and ignores them.
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

// openHere reports whether the rules also allow a device that the list allows.
func openHere(rules []*pb.DeviceRule, r *pb.DeviceRule, minor string) bool {
	n, err := strconv.ParseInt(minor, 10, 64)
	return err == nil && Allowed(rules, r.Block, r.Major, n)
}

// lines are the lines to write into the files of a new v1 group.
type lines struct {
	only  bool     // everything is closed first, and the lines open devices; else everything is open, and they close devices
	lines []string // without the kinds of access
}

// translate converts rules to lines. The kernel's v1 controller knows "everything but these" and "only these", with whole majors
// in both, and no exceptions from exceptions. A major that is closed except for some minors requires "only these", with all other
// majors listed, at most 512 (Linux, CHRDEV_MAJOR_MAX).
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
	otherMinor = 1 << 30 // a minor that no rule names
	majors     = 512
	// minorsListed is for a major that is open except for some minors, beside another that is closed except for some: its minors
	// are opened one by one, up to this number.
	minorsListed = 1024
)

// openMajors lists the open devices of one kind.
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

// number identifies devices as the kernel does; minor -1 is the whole major, major -1 all majors.
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
