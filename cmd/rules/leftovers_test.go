package rules

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestLeftovers: .ci/leftovers, in which `make test-long` runs the tests, names what a command leaves behind, however it has detached
// itself.
func TestLeftovers(t *testing.T) {
	name := fmt.Sprintf("/tmp/sluice-leftovers-%d", os.Getpid())
	t.Cleanup(func() { _ = os.Remove(name) })
	cmd := exec.Command(".ci/leftovers", "sh", "-c", `touch "$0"; (setsid tail -f "$0" >/dev/null 2>&1 &)`, name)
	cmd.Env = append(os.Environ(), "LEFTOVERS_PATIENCE=1")
	out, err := cmd.CombinedOutput()
	process := regexp.MustCompile(`new: process (\d+): tail -f ` + name).FindSubmatch(out)
	if process == nil {
		t.Fatalf("it does not name the process: %v\n%s", err, out)
	}
	pid, _ := strconv.Atoi(string(process[1]))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if !strings.Contains(string(out), "new: file "+name+"\n") {
		t.Errorf("it does not name the file:\n%s", out)
	}
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("it ends with %v", err)
	}
}
