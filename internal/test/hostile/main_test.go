package hostile

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

var built = flag.String("bin", "", "folder with the programs to test; empty: build them")

// base is the folder of this run, bin the programs under test.
var base, bin string

// attackEnv makes the test binary an attacker; the value is what it is to do.
const attackEnv = "SLUICE_HOSTILE_ATTACK"

// patience bounds every wait for a state; nothing takes as long unless something is wrong.
const patience = 5 * time.Minute

// attacks are what attackers can do, by name.
var attacks = map[string]func(a *attacker){}

// attacker is the process of an attack.
type attacker struct {
	args   []string
	orders *bufio.Scanner
}

// say tells the test.
func (a *attacker) say(text string, args ...any) { fmt.Printf(text+"\n", args...) }

// await waits until the test says that it goes on, or ends.
func (a *attacker) await() bool { return a.orders.Scan() }

// need ends the attack when something is wrong with it, and not with what it attacks.
func (a *attacker) need(err error) {
	if err != nil {
		a.say("the attack has failed: %v", err)
		os.Exit(3)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(attackEnv); name != "" {
		attacks[name](&attacker{args: os.Args[1:], orders: bufio.NewScanner(os.Stdin)})
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "16") // they wait for most of the time
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Println("skipped: the suite needs root (daemons and attackers are of different users)")
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(base)
	code := m.Run()
	if err := leaktest.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "left by the tests:", err)
		return 1
	}
	return code
}

// prepare makes the folder with the programs and the attacker, where every user can reach them.
func prepare() (err error) {
	if base, err = os.MkdirTemp("/var/tmp", "sluice-hostile-"); err != nil {
		return err
	}
	bin = filepath.Join(base, "bin")
	if err := os.Chmod(base, 0o755); err != nil {
		return err
	}
	if err := daemontest.Programs(bin, *built, "sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct", "sdiag", "sprio",
		"sshare", "salloc", "srun"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return daemontest.CopyProgram(self, filepath.Join(bin, "attacker"))
}

// poll waits until cond holds.
func poll(cond func() bool) bool { return daemontest.Poll(patience, cond) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is an attacker, or a command that somebody runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *os.File
	lines chan string
	done  chan struct{}
	said  strings.Builder // all of it, when done
}

// start runs a program as a user; its output is there line by line.
func start(t *testing.T, uid uint32, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, lines: make(chan string, 1<<16), done: make(chan struct{})}
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Env = "/", env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	inR, inW, err := os.Pipe()
	must(t, err)
	outR, outW, err := os.Pipe()
	must(t, err)
	p.in, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inW, inR, outW, outW
	must(t, p.cmd.Start())
	_, _ = inR.Close(), outW.Close()
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(outR); s.Scan(); {
			fmt.Fprintln(&p.said, s.Text())
			p.lines <- s.Text()
		}
		_ = p.cmd.Wait()
		_ = outR.Close()
		close(p.lines)
	}()
	t.Cleanup(p.kill)
	return p
}

// line is the next line that it says.
func (p *process) line() string {
	p.t.Helper()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%s has ended: %v", p.cmd.Path, p.cmd.ProcessState)
		}
		if strings.HasPrefix(l, "the attack has failed") {
			p.t.Fatal(l)
		}
		return l
	case <-t.C:
		p.t.Fatalf("%s says nothing", p.cmd.Path)
		return ""
	}
}

// end waits for its end and gives all that it has said, and its exit status.
func (p *process) end() (string, int) {
	p.t.Helper()
	_ = p.in.Close()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.t.Fatalf("%v does not end", p.cmd.Args)
	}
	return p.said.String(), p.cmd.ProcessState.ExitCode()
}

func (p *process) kill() {
	_, _ = p.in.Close(), p.cmd.Process.Kill()
	<-p.done
}
