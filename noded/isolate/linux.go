package isolate

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Linux is the Kernel of this machine.
type Linux struct{}

// File refuses what is not a device.
func (Linux) File(path string) (Number, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Number{}, err
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return Number{}, errors.New("it is not a device")
	}
	return Number{kind == unix.S_IFBLK, int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))}, nil
}

// Majors reads /proc/devices; empty if it does not exist.
func (Linux) Majors() map[string]int64 {
	f, err := os.Open("/proc/devices")
	if err != nil {
		return nil
	}
	defer f.Close()
	return readMajors(bufio.NewScanner(f))
}

// Graphics reads sysfs, whose PCI domains have four digits where NVML's have eight.
func (Linux) Graphics(pci string) (files []string) {
	pci = strings.ToLower(pci)
	if len(pci) == len("00000000:07:00.0") {
		pci = pci[4:]
	}
	if strings.Trim(pci, "0123456789abcdef:.") != "" {
		return nil
	}
	entries, err := os.ReadDir("/sys/bus/pci/devices/" + pci + "/drm")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "card") || strings.HasPrefix(e.Name(), "renderD") {
			files = append(files, "/dev/dri/"+e.Name())
		}
	}
	return files
}

func readMajors(lines *bufio.Scanner) map[string]int64 {
	majors, character := map[string]int64{}, false
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasSuffix(line, "devices:") {
			character = strings.HasPrefix(line, "Character")
			continue
		}
		number, name, ok := strings.Cut(line, " ")
		if major, err := strconv.ParseInt(number, 10, 64); ok && err == nil && character {
			majors[strings.TrimSpace(name)] = major
		}
	}
	return majors
}
