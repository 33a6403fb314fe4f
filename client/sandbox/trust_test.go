package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAProcessThatClaimsToBeOurs: a command line says what its process likes, so it makes nobody a daemon of the cluster.
func TestAProcessThatClaimsToBeOurs(t *testing.T) {
	base := t.TempDir()
	d := Dir(filepath.Join(base, "c"))
	program := filepath.Join(base, nodedName) // a shell of that name
	shell, err := os.ReadFile("/bin/sh")
	if err == nil {
		err = os.WriteFile(program, shell, 0o755)
	}
	for at := base; err == nil && at != os.TempDir(); at = filepath.Dir(at) {
		err = os.Chmod(at, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := func(exe string, uid uint32) int {
		cmd := exec.Command(exe, "-c", "read x", "--node", "n1", "stepd", "--spool", d.spool("n1"))
		cmd.Args[0] = nodedName
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		}
		hold, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { hold.Close(); cmd.Wait() })
		return cmd.Process.Pid
	}
	self := uint32(os.Geteuid())
	cases := []struct {
		what string
		exe  string
		uid  uint32
		ours bool
	}{{"a daemon", program, self, true}, {"another program", "/bin/sh", self, false}}
	if self == 0 {
		cases = append(cases, struct {
			what string
			exe  string
			uid  uint32
			ours bool
		}{"another user's process", program, 54321, false})
	}
	for _, c := range cases {
		pid, ours := start(c.exe, c.uid), false
		for _, f := range d.find() {
			ours = ours || f.PID == pid
		}
		if ours != c.ours {
			t.Errorf("%s: ours is %v", c.what, ours)
		}
		if foreign := foreignShim(pid, Dir("/another/cluster")); foreign != c.ours {
			t.Errorf("%s: taken for another cluster's shim: %v", c.what, foreign)
		}
	}
}

// TestRootFollowsNoLinkOfAUsers: where it leads could be changed between two commands, to the folder of another cluster.
func TestRootFollowsNoLinkOfAUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has others to fear: run as root")
	}
	t.Setenv("SUDO_UID", "")
	base := t.TempDir()
	victim, home := filepath.Join(base, "victim"), filepath.Join(base, "home")
	link, way := filepath.Join(home, "c"), filepath.Join(base, "way")
	for _, err := range []error{os.Mkdir(victim, 0o755), os.Mkdir(home, 0o755), os.Symlink(victim, link), os.Symlink(base, way),
		os.Lchown(link, 12345, -1), os.Chown(home, 12345, -1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "could be changed by somebody else")
	}
	if _, err := existingDir(link); !refused(err) {
		t.Errorf("a user's link: %v", err)
	}
	if _, err := Down(t.Context(), DownOptions{Dir: link, Wipe: true}); !refused(err) {
		t.Errorf("down --wipe: %v", err)
	}
	if _, _, err := openDir(filepath.Join(link, "new", "c")); !refused(err) {
		t.Errorf("below a user's link: %v", err)
	}
	if _, err := existingDir(filepath.Join(way, "victim")); err != nil {
		t.Errorf("root's own link: %v", err)
	}
	t.Setenv("SUDO_UID", fmt.Sprint(12345))
	if _, err := existingDir(link); err != nil {
		t.Errorf("the link of who became root: %v", err)
	}
}
