package gpu

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Simulated GPUs are real character devices, so that the device controller has something to close. Their major numbers are among
// those that the kernel reserves for local use (devices.txt: 60–63 and 120–127 LOCAL/EXPERIMENTAL USE), which no driver serves:
// opening an allowed one fails with ENXIO, a closed one with EPERM. Several nodes on one machine have directories with different
// numbers.
var fakeMajors = []uint32{60, 61, 62, 63, 120, 121, 122, 123, 124, 125, 126, 127}

// Places among the minor numbers of a directory.
const (
	minorsAFolder = 2048
	folders       = (1 << 20) / minorsAFolder // a minor number has 20 bits
	capMinors     = maxFakes                  // after the GPUs: the capabilities of their instances
	commonMinors  = 2000
)

// commonFiles are opened by every GPU job.
var commonFiles = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// fakeFiles is the /dev of a simulated machine.
type fakeFiles struct {
	dir   string
	major uint32
	base  uint32
	// plain is why its files are not devices: only root may create devices.
	plain error
}

func newFakeFiles(dir string) (*fakeFiles, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dir))
	n := h.Sum32() % uint32(folders*len(fakeMajors))
	f := &fakeFiles{dir: dir, major: fakeMajors[n/folders], base: n % folders * minorsAFolder}
	if err := os.MkdirAll(filepath.Join(dir, "nvidia-caps"), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the directory of simulated GPUs: %w", err)
	}
	for i, name := range commonFiles {
		if err := f.make(name, commonMinors+i); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// make creates one device file, with the given place among this directory's minor numbers. An existing one stays.
func (f *fakeFiles) make(name string, place int) error {
	path := filepath.Join(f.dir, name)
	dev := unix.Mkdev(f.major, f.base+uint32(place))
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil {
		if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == dev || f.plain != nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot make the simulated device %s: %w", path, err)
		}
	}
	if f.plain == nil {
		err := unix.Mknod(path, unix.S_IFCHR|0o666, int(dev))
		if err == nil {
			return os.Chmod(path, 0o666) // whatever the umask
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("cannot make the simulated device %s: %w", path, err)
		}
		f.plain = err
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return fmt.Errorf("cannot make the file of a simulated device: %w", err)
	}
	return os.Chmod(path, 0o666)
}

func (f *fakeFiles) remove(name string) { _ = os.Remove(filepath.Join(f.dir, name)) }

func (f *fakeFiles) path(name string) string { return filepath.Join(f.dir, name) }

// gpu creates the file of one GPU.
func (f *fakeFiles) gpu(minor int) (string, error) {
	name := "nvidia" + strconv.Itoa(minor)
	return f.path(name), f.make(name, minor)
}

// capability returns the name and place of an instance's file. Each memory slice of a GPU has two: one for the GPU instance, one
// for the compute instance.
func capability(minor int, start uint32, which int) (name string, place int) {
	n := minor*16 + int(start)*2 + which
	return "nvidia-caps/nvidia-cap" + strconv.Itoa(n+3), capMinors + n
}

func (f *fakeFiles) common() (out []string) {
	for _, name := range commonFiles {
		out = append(out, f.path(name))
	}
	return out
}
