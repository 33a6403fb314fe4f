package roletest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemove: what the roles have written is removed, also the files of slurm.conf and Prometheus, and what is the site's stays.
func TestRemove(t *testing.T) {
	const files = "cd /etc; mkdir -p slurm sluice/tls sluice/programs/health.d prometheus/sluice-rules\n" +
		"touch slurm/slurm.conf slurm/gres.conf slurm/cgroup.conf slurm/own.lua sluice/tls/node.crt sluice/programs/health " +
		"sluice/programs/health.d/own prometheus/sluice-rules/alerts.yml\n"
	for name, c := range map[string]struct {
		prometheus string
		vars       map[string]any
		stay, gone []string
	}{
		"with the state": {"Written by Ansible (deploy/ansible).", map[string]any{"sluice_uninstall_state": true,
			"sluice_state_dir": "/var/none"},
			[]string{"slurm/own.lua", "sluice/programs/health.d/own"}, []string{"slurm/slurm.conf", "slurm/gres.conf", "slurm/cgroup.conf",
				"sluice/tls", "sluice/programs/health", "prometheus/sluice-rules", "prometheus/prometheus.yml"}},
		"without": {"of the site", nil, []string{"slurm/slurm.conf", "slurm/gres.conf", "prometheus/prometheus.yml"},
			[]string{"sluice/tls", "prometheus/sluice-rules"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := play{inventory: "[controller]\nhead\n", vars: c.vars, tasks: "- file: common/remove\n",
				before: files + "echo '# " + c.prometheus + "' >prometheus/prometheus.yml\n"}.good(t)
			for _, path := range slices.Concat(c.stay, c.gone) {
				_, err := os.Lstat(filepath.Join(r.dir, "etc", path))
				if stays := err == nil; stays != slices.Contains(c.stay, path) {
					t.Errorf("/etc/%s: %v\n%s", path, err, r.out)
				}
			}
		})
	}
}
