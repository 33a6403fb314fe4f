//go:build cgo

package nvml

import (
	"encoding/csv"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/gpu"
)

// On a machine with GPUs what the adapter says is what NVIDIA's own tool says.
func TestAgainstNvidiaSMI(t *testing.T) {
	src, err := Open()
	if err != nil {
		t.Skipf("no GPU to look at: %v", err)
	}
	defer src.Close()
	out, err := exec.Command("nvidia-smi", "--query-gpu=uuid,name,pci.bus_id,index,driver_version,mig.mode.current",
		"--format=csv,noheader").Output()
	if err != nil {
		t.Skipf("no nvidia-smi to compare with: %v", err)
	}
	rows, err := csv.NewReader(strings.NewReader(strings.ReplaceAll(string(out), ", ", ","))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	devices, err := src.Devices()
	if err != nil {
		t.Fatal(err)
	}
	infos := map[string]gpu.Info{}
	for _, d := range devices {
		in, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		infos[d.UUID()] = in
		samples, err := d.Samples()
		t.Logf("driver %s: %+v", src.Driver(), in)
		t.Logf("%v, %v", samples, err)
		h, err := d.Health()
		p, perr := d.Processes()
		t.Logf("%+v %v, %+v %v", h, err, p, perr)
	}
	mode := map[string]string{"Enabled": "on", "Disabled": "off", "[N/A]": ""}
	for _, r := range rows {
		in, ok := infos[r[0]]
		if !ok || in.Model != r[1] || !strings.EqualFold(in.PCI, r[2]) || src.Driver() != r[4] ||
			mode[r[5]] != strings.TrimPrefix(in.MIG, "pending ") && !strings.HasPrefix(in.MIG, "pending") {
			t.Errorf("nvidia-smi says %v, the adapter %+v", r, in)
		}
	}
	if len(rows) != len(infos) {
		t.Errorf("nvidia-smi lists %d GPUs, the adapter %d", len(rows), len(infos))
	}
}
