package wire

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The way to the controller: its own socket where it is, the relay of the host elsewhere, and what came with a job from another host
// misleads nobody.
func TestSocketPath(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=Lab\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	listen := func(parts ...string) string {
		path := filepath.Join(append([]string{dir}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return path
	}
	relay := listen("far", "lab", "relay.sock")
	far := filepath.Join(dir, "far")
	both := filepath.Join(dir, "both")
	listen("both", "lab", "relay.sock")
	ctld := listen("both", "lab", "ctld.sock")
	service := filepath.Join(dir, "service")
	listen("service", "lab", "ctld.sock")
	if err := os.MkdirAll(filepath.Join(dir, "service-ctld", "lab"), 0o755); err != nil { // its socket is not there while it restarts
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	gone := filepath.Join(dir, "gone")
	for name, c := range map[string]struct {
		env  map[string]string
		run  string
		want string
	}{
		"on a login host":        {map[string]string{"SLURM_CONF": conf}, far, relay},
		"on the controller's":    {map[string]string{"SLURM_CONF": conf}, both, ctld},
		"where there is nothing": {map[string]string{"SLURM_CONF": conf}, empty, filepath.Join(empty, "lab", "ctld.sock")},
		"of a service":           {map[string]string{"SLURM_CONF": conf}, service, filepath.Join(service+"-ctld", "lab", "ctld.sock")},
		"as SLUICE_SOCKET says":  {map[string]string{"SLUICE_SOCKET": "/x/s", "SLURM_CONF": conf}, far, "/x/s"},
		"in a job of another host": {map[string]string{"SLUICE_SOCKET": gone + "/s", "SLURM_CONF": conf, "SLURM_JOB_ID": "1"}, far,
			relay},
		"in a job while it restarts": {map[string]string{"SLUICE_SOCKET": far + "/s", "SLURM_CONF": conf, "SLURM_JOB_ID": "1"}, both,
			far + "/s"},
		"without configuration": {map[string]string{"SLURM_CONF": gone}, far, relay},
	} {
		got, err := socketPath(func(k string) string { return c.env[k] }, c.run)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
	if got, err := socketPath(func(k string) string { return map[string]string{"SLURM_CONF": gone}[k] }, empty); err == nil {
		t.Errorf("without configuration and relay: %s", got)
	}
}
