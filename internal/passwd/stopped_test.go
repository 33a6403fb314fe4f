package passwd

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestStopped: that sssd does not run is told from a user who does not exist, and only where sssd is asked at all.
func TestStopped(t *testing.T) {
	root, err := os.MkdirTemp("", "nss") // short: the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want bool) {
		t.Helper()
		if got := stopped(root, "passwd"); (got != nil) != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	check("no nsswitch.conf", false)
	write("etc/nsswitch.conf", "passwd: files # sss\ngroup: files sss\n")
	write("etc/sssd/sssd.conf", "[sssd]\n")
	check("sssd is not asked", false)
	write("etc/nsswitch.conf", "# local\npasswd:\t sss files systemd\n")
	check("sssd is asked and does not run", true)
	if err := os.Remove(filepath.Join(root, "etc/sssd/sssd.conf")); err != nil {
		t.Fatal(err)
	}
	check("sssd is not used", false)
	write("etc/sssd/sssd.conf", "[sssd]\n")
	write(sssdSocket+".other", "")
	l, err := net.Listen("unix", filepath.Join(root, sssdSocket))
	if err != nil {
		t.Fatal(err)
	}
	check("sssd runs", false)
	l.Close()
	write(sssdSocket, "") // left by one that was killed
	check("nobody listens there", true)
}
