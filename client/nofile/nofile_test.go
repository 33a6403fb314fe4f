// The test is another package: with it inside, the package would import syscall.
package nofile_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sluice-hpc/sluice/client/nofile"
)

// TestAtStart starts itself below a lower limit, as a shell does, and asks the child.
func TestAtStart(t *testing.T) {
	if os.Getenv("NOFILE_CHILD") != "" {
		soft, hard, ok := nofile.AtStart()
		fmt.Println(soft, hard, ok)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -Sn 200; ulimit -Hn 300; exec "$0" -test.run '^TestAtStart$'`, self)
	cmd.Env = append(os.Environ(), "NOFILE_CHILD=1")
	out, err := cmd.Output()
	if want := "200 300 true\nPASS\n"; err != nil || string(out) != want {
		t.Errorf("%q (%v), want %q", out, err, want)
	}
}
