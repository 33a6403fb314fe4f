package conf

import (
	"os"
	"strings"
	"testing"
)

// TestDebugLevels: what slurm.conf may have as a level, and which one that is, by the answers of a real Slurm.
func TestDebugLevels(t *testing.T) {
	text, err := os.ReadFile("testdata/debug-levels.txt")
	if err != nil {
		t.Fatal(err)
	}
	differs := map[string]string{
		"10":         "debug5", // a level that Slurm has no name for, and logs everything with
		"4294967296": "debug5", // Slurm counts from 0 again
		// Slurm takes the digits in front, which is hardly what was meant.
		"3x": "refused", "3.0": "refused", "0x3": "refused",
	}
	for line := range strings.Lines(string(text)) {
		value, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue // a comment
		}
		if other := differs[value]; other != "" {
			want = other
		}
		for _, key := range []string{"SlurmctldDebug", "SlurmdDebug", "SlurmctldSyslogDebug", "SlurmdSyslogDebug"} {
			conf := "ClusterName=c\nSlurmctldHost=h\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n" + key + "=" + value + "\n"
			c, err := Load("slurm.conf", Options{ReadFile: func(path string) ([]byte, error) {
				if path != "slurm.conf" {
					return nil, os.ErrNotExist
				}
				return []byte(conf), nil
			}})
			got := "refused"
			if err == nil {
				got = map[string]string{"SlurmctldDebug": c.SlurmctldDebug, "SlurmdDebug": c.SlurmdDebug,
					"SlurmctldSyslogDebug": c.SlurmctldSyslogDebug, "SlurmdSyslogDebug": c.SlurmdSyslogDebug}[key]
			} else if !strings.Contains(err.Error(), "slurm.conf:5: ") {
				t.Errorf("%s=%s: %v", key, value, err)
			}
			if got != want {
				t.Errorf("%s=%s is %q (%v), want %q", key, value, got, err, want)
			}
		}
	}
}
