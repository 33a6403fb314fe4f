package compat

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

var (
	recording = flag.Bool("record", false, "type the corpus at the Slurm that $SLURM_CONF names, and keep what it answers (make oracle)")
	corpus    = flag.String("corpus", "testdata/corpus", "the folder of scripts; testdata/steps has more of them, about steps")
	updating  = flag.Bool("update", false, "keep what Sluice answers differently, for a reason to be written beside it")
)

// cluster is Sluice's, started once for all tests of the package that ask for it.
var cluster = sync.OnceValues(startCluster)

// stopCluster ends it, when it was started.
var stopCluster = func() error { return nil }

func TestMain(m *testing.M) {
	flag.Parse()
	if !*recording {
		if code, ran := daemontest.Apart(hostName); ran {
			os.Exit(code)
		}
	}
	code := m.Run()
	if err := stopCluster(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// hostName is what the machine is called while the corpus is typed: no word of any answer, and short enough for every column. The true
// name may be a word that answers have, or too long for its column.
const hostName = "typedhost"

// sluice gives the cluster, or skips a test that cannot have it.
func sluice(t *testing.T) *system {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the cluster of the comparison runs jobs of several users, which only root can")
	}
	sys, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

func startCluster() (*system, error) {
	dir, err := os.MkdirTemp("/var/tmp", "sluice-compat-")
	if err != nil {
		return nil, err
	}
	stopCluster = func() error { return os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	bin, c := filepath.Join(dir, "bin"), filepath.Join(dir, "c")
	if built := os.Getenv("SLUICE_TEST_BIN"); built != "" { // a folder of programs to test, such as of a package
		if err := os.Symlink(built, bin); err != nil {
			return nil, err
		}
	} else if err := build(bin); err != nil {
		return nil, err
	}
	// The name is as long as that of the recorded cluster, and no other's on this machine.
	name := fmt.Sprintf("c%05d", os.Getpid()%100000)
	conf, err := configure(dir, name)
	if err != nil {
		return nil, err
	}
	stopCluster = func() error {
		out, err := exec.Command(filepath.Join(bin, "sluice"), "down", "--now", "--dir", c).CombinedOutput()
		if err != nil {
			return fmt.Errorf("sluice down: %w: %s", err, out)
		}
		return os.RemoveAll(dir)
	}
	if out, err := exec.Command(filepath.Join(bin, "sluice"), "up", "--dir", c, "--conf", conf).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sluice up: %w: %s", err, out)
	}
	absent := filepath.Join(dir, "absent")
	if err := hideSlurm(absent, bin); err != nil {
		return nil, err
	}
	return &system{data: dir, cluster: name, env: []string{
		"PATH=" + bin + ":" + absent + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"SLURM_CONF=" + conf, "SLUICE_SOCKET=" + filepath.Join(c, "run", "ctld.sock")}}, nil
}

// hideSlurm makes commands that are not there stand before Slurm's own of that name, which this machine may have.
func hideSlurm(absent, bin string) error {
	if err := os.Mkdir(absent, 0o755); err != nil {
		return err
	}
	for _, name := range strings.Fields(
		"sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol scrontab sdiag sgather sinfo sprio squeue sreport srun sshare " +
			"sstat strigger seff") {
		if _, err := os.Stat(filepath.Join(bin, name)); err == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(absent, name), []byte("#!/bin/sh\necho \"$0: not there\" >&2\nexit 127\n"),
			0o755); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs as `make build` does, so that the build cache serves both.
func build(bin string) error {
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", bin,
		"./cmd/...")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	if out, err := exec.Command("../../.ci/link", bin).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot link the commands: %w\n%s", err, out)
	}
	return nil
}

// configure writes the reference configuration with free ports.
func configure(dir, name string) (string, error) {
	base, err := freePorts(10)
	if err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	host, _, _ = strings.Cut(host, ".")
	value := func(name string) string {
		switch {
		case name == "DIR":
			return dir
		case name == "HOST":
			return host
		case strings.HasPrefix(name, "PORT") && len(name) == 5:
			return fmt.Sprint(base + int(name[4]-'0'))
		}
		return "$" + name
	}
	if err := os.Mkdir(filepath.Join(dir, "dev"), 0o755); err != nil {
		return "", err
	}
	for _, gpu := range []string{"gpu0", "gpu1"} {
		if err := os.WriteFile(filepath.Join(dir, "dev", gpu), nil, 0o644); err != nil {
			return "", err
		}
	}
	for _, file := range []string{"gres.conf", "slurm.conf"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			return "", err
		}
		filled := strings.Replace(os.Expand(string(text), value), "ClusterName="+recordedName,
			"ClusterName="+name+"\nMessageTimeout=300", 1)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(filled), 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "slurm.conf"), nil
}

// recordedName is the cluster's name in testdata/slurm.conf.
const recordedName = "compat"

// freePorts finds n ports in a row that nobody listens on, and no other test of this repository looks for.
func freePorts(n int) (int, error) {
	for range 100 {
		base, free := 10000+rand.IntN(1000-n), true
		for p := base; p < base+n && free; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("cannot find free ports")
}
