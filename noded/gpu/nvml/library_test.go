//go:build cgo

package nvml

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The real loading of a real library, which lacks most functions: calling one that is not there would end the process, so the
// work is done in another one.
func TestOldLibrary(t *testing.T) {
	if path := os.Getenv("SLUICE_TEST_NVML"); path != "" {
		useOldLibrary(t, path)
		return
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler to build the library with")
	}
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, "testdata/oldnvml.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOldLibrary$", "-test.v")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_NVML="+lib)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "driver 331.62") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

func useOldLibrary(t *testing.T, path string) {
	src, err := open(nvml.New(nvml.WithLibraryPath(path)), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("driver %s", src.Driver())
	devices, err := src.Devices()
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v, %v", devices, err)
	}
	d := devices[0]
	in, err := d.Info()
	if err != nil || in.Model != "Tesla K20" || gpu.ShortType(in.Model) != "k20" || in.Minor != 3 || in.PCI != "00000000:05:00.0" ||
		in.MemoryMiB != 5120 || in.MIG != "" || in.ECC != "n/a" {
		t.Errorf("%+v, %v", in, err)
	}
	list, err := d.Samples()
	if err != nil || list[0].UtilPercent != 42 || list[0].TemperatureC != 55 || list[0].PowerMw != gpu.NA || list[0].EnergyMj != gpu.NA ||
		list[0].Throttle != "n/a" {
		t.Errorf("%v, %v", list, err)
	}
	if h, err := d.Health(); err != nil || h.Uncorrectable != gpu.NA {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := d.Processes(); err != nil {
		t.Error(err)
	}
	if _, _, err := src.Wait(0); !errors.Is(err, gpu.ErrNotSupported) {
		t.Error(err)
	}
	for _, err := range []error{d.SetMIG(true), d.CreateInstance(&pb.MigProfile{}, 0), d.DestroyInstance("x")} {
		if !errors.Is(err, gpu.ErrNotSupported) {
			t.Error(err)
		}
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}
