package roletest

import (
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestFoldersOfLogs: what slurm.conf names for logs and process ids is there, and belongs to who writes it.
func TestFoldersOfLogs(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("the user nobody is missing: useradd --system nobody")
	}
	vars := map[string]any{"slurm_user": "nobody", "slurm_config": map[string]any{"SlurmctldLogFile": "/var/log/slurm/a/slurmctld.log",
		"SlurmctldPidFile": "/var/run/slurm/slurmctld.pid", "JobCompLoc": "/var/log/jobcomp.log",
		"SlurmdLogFile": "/var/log/slurm/%n/slurmd.log", "SlurmdPidFile": "/run/slurm-%h/slurmd.pid"}}
	for _, c := range []struct {
		role, unit string
		owners     map[string]string
	}{
		{"controller", "ReadWritePaths=/var/log,ReadWritePaths=/var/log/slurm/a,RuntimeDirectory=slurm", map[string]string{
			"var/log": "0", "var/log/slurm": "0", "var/log/slurm/a": nobody.Uid, "var/log/slurm/a/slurmctld.log": nobody.Uid,
			"var/log/jobcomp.log": nobody.Uid}},
		{"node", "RuntimeDirectory=slurm-head", map[string]string{"var/log/slurm": "0", "var/log/slurm/head": "0"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			r := play{inventory: "[controller]\nhead\n[nodes]\nhead\n", vars: vars,
				tasks: "- file: " + c.role + "/unit\n- meta: end_play\n"}.good(t)
			for path, want := range c.owners {
				info, err := os.Stat(filepath.Join(r.dir, path))
				if err != nil {
					t.Errorf("%v\n%s", err, r.out)
				} else if got := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)); got != want {
					t.Errorf("/%s belongs to %s, not to %s", path, got, want)
				}
			}
			daemon := map[string]string{"controller": "ctld", "node": "noded"}[c.role]
			var got []string
			for line := range strings.Lines(r.file(t, "etc/systemd/system/sluice-"+daemon+".service.d/ansible.conf")) {
				if strings.Contains(line, "Paths=") || strings.Contains(line, "Directory=") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if !reflect.DeepEqual(got, strings.Split(c.unit, ",")) {
				t.Errorf("the unit is told %q, want %q", got, c.unit)
			}
		})
	}
}
