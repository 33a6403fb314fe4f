package inherit_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/inherit"
)

// TestMain lets the test binary be the daemon that a test is about, and the program that a daemon starts.
func TestMain(m *testing.M) {
	switch arg := strings.Join(os.Args[1:], " "); arg {
	case "show":
		fmt.Print(session(), " ", secret(), " ", descriptors())
	case "adj":
		fmt.Print(adj())
	case "spare":
		// More, not less: this needs no rights. The next process is as this one was before.
		err := inherit.Spare(100)
		out, err2 := inherit.CombinedOutput(exec.Command("/proc/self/exe", "adj"))
		fmt.Print(adj(), " ", string(out), " ", err, " ", err2)
	case "start", "close", "close 1":
		if arg != "start" {
			inherit.Close(len(os.Args) - 2)
		}
		cmd := exec.Command("/proc/self/exe", "show")
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4243}}
		}
		out, err := inherit.CombinedOutput(cmd)
		fmt.Printf("%v %s%s", err, out, descriptors())
	default:
		os.Exit(m.Run())
	}
}

// session is the session keyring that the kernel shows: type, uid, gid, permissions, name.
func session() string {
	s, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		return err.Error()
	}
	return s
}

const secretName = "sluice test: a key of root's"

func secret() bool {
	_, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", secretName, 0)
	return err == nil
}

// descriptors are those of this process that lead to the passwd file.
func descriptors() string {
	var found []string
	for fd := range 300 {
		if to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); to == "/etc/passwd" {
			found = append(found, strconv.Itoa(fd))
		}
	}
	return fmt.Sprintln(found)
}

// daemon runs this binary as a daemon that was started with a key in its session keyring, and the passwd file open as 3 and 251.
func daemon(t *testing.T, arg ...string) string {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := inherit.NewKeyring(uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Skipf("no session keyrings here: %v", err)
	}
	if _, err := unix.AddKey("user", secretName, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		t.Skipf("no keys here: %v", err)
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	self := "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"
	cmd := exec.Command("/bin/bash", append([]string{"-c", `exec 251</dev/fd/3; exec "$0" "$@"`, self}, arg...)...)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	return string(out)
}

func TestStart(t *testing.T) {
	uid, gid := os.Getuid(), os.Getgid()
	if os.Geteuid() == 0 {
		uid, gid = 4242, 4243
	}
	want := fmt.Sprintf("<nil> keyring;%d;%d;3f030000;_ses false [3 251]\n[3 251]\n", uid, gid)
	if got := daemon(t, "start"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := daemon(t, "show"); !strings.Contains(got, "_ses true") {
		t.Errorf("the test does not see what it is about: %q", got)
	}
}

func TestClose(t *testing.T) {
	for arg, want := range map[string]string{"close": " false []\n[]\n", "close 1": " false [3]\n[3]\n"} {
		if got := daemon(t, strings.Fields(arg)...); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", arg, got, want)
		}
	}
}

func adj() string {
	b, _ := os.ReadFile("/proc/self/oom_score_adj")
	return strings.TrimSpace(string(b))
}

// TestSpare: what a daemon is for the out-of-memory killer, the programs that it starts are not.
func TestSpare(t *testing.T) {
	if was := adj(); was != "0" {
		t.Skipf("this process has oom_score_adj %s, which is kept", was)
	}
	out, err := exec.Command("/proc/self/exe", "spare").CombinedOutput()
	if string(out) != "100 0 <nil> <nil>" || err != nil {
		t.Errorf("the daemon, a program of it: %s, %v", out, err)
	}
}
