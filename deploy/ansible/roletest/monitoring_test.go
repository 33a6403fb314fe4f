package roletest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGrafana: a Grafana that is there gets the dashboards as files, and is restarted for them; its own files stay.
func TestGrafana(t *testing.T) {
	monitoring, err := filepath.Abs("../../monitoring")
	if err != nil {
		t.Fatal(err)
	}
	r := play{inventory: "[controller]\nhead\n",
		vars:  map[string]any{"sluice_monitoring_files": monitoring, "sluice_grafana_repository": ""},
		tasks: "- file: monitoring/grafana\n- ansible.builtin.meta: flush_handlers\n",
		before: "mkdir -p /etc/grafana/provisioning/dashboards /etc/grafana/provisioning/datasources\n" +
			"touch /etc/grafana/provisioning/datasources/own.yml\n",
		programs: map[string]string{"systemctl": "#!/bin/sh\necho \"$@\" >>/etc/grafana/asked\n" +
			"echo LoadState=loaded\necho ActiveState=active\n"},
	}.good(t)
	for _, path := range []string{"etc/grafana/provisioning/dashboards/sluice.yml", "etc/grafana/provisioning/datasources/sluice.yml",
		"etc/grafana/provisioning/datasources/own.yml", "var/lib/grafana/dashboards/sluice/sluice-gpus.json"} {
		if _, err := os.Stat(filepath.Join(r.dir, path)); err != nil {
			t.Error(err)
		}
	}
	if asked := r.file(t, "etc/grafana/asked"); strings.Count(asked, "restart grafana-server.service") != 1 {
		t.Errorf("Grafana is not restarted once: %s", asked)
	}
}
