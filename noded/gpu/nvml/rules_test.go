package nvml

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const library = "github.com/NVIDIA/go-nvml/pkg/nvml"

// list runs go list in the root of the module.
func list(t *testing.T, cgo string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return string(out)
}

// Only this package needs the library and a C compiler; without one the node daemon is built all the same, and the other two
// programs never link it.
func TestOnlyHere(t *testing.T) {
	for line := range strings.Lines(list(t, "1", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")) {
		if pkg, imports, _ := strings.Cut(line, " "); strings.Contains(imports, library) && !strings.HasSuffix(pkg, "noded/gpu/nvml") {
			t.Errorf("%s imports %s", pkg, library)
		}
	}
	if deps := list(t, "0", "-deps", "./cmd/sluice-noded"); strings.Contains(deps, library) {
		t.Error("the node daemon links the library without cgo")
	}
	if deps := list(t, "1", "-deps", "./cmd/sluice", "./cmd/sluice-ctld"); strings.Contains(deps, library) {
		t.Error("a program other than the node daemon links the library")
	}
}
