package boottest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exposure are the units that are confined, and how far systemd-analyze may call them exposed, in tenths: 0 is nothing, 100 everything.
var exposure = map[string]int{"sluice-ctld.service": 15, "sluice-login.service": 15}

// TestSandbox: what systemd says of the sandboxes. It needs no host and no root.
func TestSandbox(t *testing.T) {
	if err := exec.Command("systemd-analyze", "security", "--offline=true", "--help").Run(); err != nil {
		t.Skip("systemd-analyze cannot judge units (apt-get install systemd, at least 250):", err)
	}
	for unit, most := range exposure {
		cmd := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", fmt.Sprintf("--threshold=%d", most),
			filepath.Join("../../../deploy/systemd", unit))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s is exposed more than %d.%d: %v\n%s", unit, most/10, most%10, err, out)
		}
	}
}

// TestVerify: systemd finds nothing wrong with the units, on a system of its own where their programs are.
func TestVerify(t *testing.T) {
	if err := exec.Command("systemd-analyze", "verify", "--help").Run(); err != nil {
		t.Skip("systemd-analyze cannot check units (apt-get install systemd):", err)
	}
	units, err := filepath.Glob("../../../deploy/systemd/*.service")
	if err != nil || len(units) < 3 {
		t.Fatal(units, err)
	}
	dir := t.TempDir()
	for _, unit := range units { // programs that are there, and executable
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			key, command, _ := strings.Cut(line, "=")
			if strings.HasPrefix(key, "Exec") {
				program := strings.TrimLeft(strings.Fields(command)[0], "+-!@:")
				text = []byte(strings.ReplaceAll(string(text), program+" ", "/bin/true "))
				text = []byte(strings.ReplaceAll(string(text), program+"\n", "/bin/true\n"))
			}
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(unit)), text, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, filepath.Base(unit)))
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(unit)) {
			t.Errorf("%s: %v\n%s", filepath.Base(unit), err, out)
		}
	}
}
