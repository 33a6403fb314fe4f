package roletest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHealth: what the health check makes of nvidia-smi on a node with two GPUs; what it says that is no figure is never read as one.
func TestHealth(t *testing.T) {
	const two = "GPU 0: A100 (UUID: GPU-a)\nGPU 1: A100 (UUID: GPU-b)"
	for name, c := range map[string]struct {
		list, rows string // scripts for nvidia-smi -L and for its queries
		want       string // the reason, "" for none
	}{
		"healthy": {"echo '" + two + "'", "echo '0, 0'; echo '1, 0'", ""},
		"mismatch": {"echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18", "exit 18",
			"nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch"},
		"silent":        {"exit 9", "exit 9", "nvidia-smi failed: exit status 9"},
		"gone":          {"exit 127", "exit 127", ""},
		"gone since":    {"echo '" + two + "'", "echo '/x: 1: nvidia-smi: not found, Yes' >&2; exit 127", ""},
		"unknown field": {"echo '" + two + "'", "echo 'Field \"remapped_rows.failure\" is not a valid field, 1'; exit 2", ""},
		"one lost": {"echo 'GPU 0: A100 (UUID: GPU-a)'; echo 'Unable to determine 1: GPU is lost'", "exit 15",
			"1 of 2 GPUs are lost: Unable to determine 1: GPU is lost"},
		"ECC errors":       {"echo '" + two + "'", "echo '0, 0'; echo '1, 3'", "GPU 1 has 3 uncorrectable ECC errors"},
		"none of any kind": {"exit 0", "exit 0", "2 of 2 GPUs are lost"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, program := range []string{"health", "within"} {
				text, err := os.ReadFile("../roles/node/files/" + program)
				if err != nil {
					t.Fatal(err)
				}
				write(program, string(text))
			}
			write("sys/bus/pci/drivers/nvidia/0000:01:00.0", "")
			write("sys/bus/pci/drivers/nvidia/0000:02:00.0", "")
			write("run/none", "")
			write("smi", "#!/bin/sh\n[ \"$1\" != -L ] || { "+c.list+"\nexit; }\n"+c.rows+"\n")
			write("sluice", "#!/bin/sh\n[ \"$1\" != scontrol ] || echo \"$5\"\n")
			write("programs.conf", "paths='' sluice="+dir+"/sluice nvidia_smi="+dir+"/smi sysfs="+dir+"/sys run="+dir+"/run\n")
			cmd := exec.Command(filepath.Join(dir, "health"))
			cmd.Env = append(os.Environ(), "SLURMD_NODENAME=n1")
			out, err := cmd.CombinedOutput()
			want := ""
			if c.want != "" {
				want = "reason=health: " + c.want
			}
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		})
	}
}
