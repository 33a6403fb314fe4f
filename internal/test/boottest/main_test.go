package boottest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/boottest"
)

var built = flag.String("bin", "", "folder with the programs to test, which were built without cgo; empty: build them")

// base is the folder of this run.
var base string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	var err error
	if base, err = os.MkdirTemp("/var/tmp", "sluice-boot-"); err == nil {
		err = os.Chmod(base, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(base)
	return m.Run()
}

// programs are the programs under test.
var programs = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(base, "bin")
	return bin, boottest.Build(bin, *built)
})

// installed is what a host with Sluice has.
func installed(t *testing.T) (files, bind map[string]string) {
	t.Helper()
	if _, err := boottest.Root(); err != nil {
		t.Skip("no hosts can be booted here: ", err)
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	files, bind, err = boottest.Installed(bin)
	if err != nil {
		t.Fatal(err)
	}
	return files, bind
}
