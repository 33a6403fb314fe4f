package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/container/containertest"
)

// patience is how long a script waits for a state: far longer than it takes, so that a slow machine is no failure.
const patience = 5 * time.Minute

// scriptCommands are what scripts can do beside testscript's own commands. None of them sleeps for a fixed time: each waits
// for a state.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"cluster":  cmdCluster,
	"submit":   cmdSubmit,
	"waitjob":  cmdWaitJob,
	"waitnode": cmdWaitNode,
	"waitfile": cmdWaitFile,
	"waitfor":  cmdWaitFor,
	"kill9":    cmdKill9,
	"expand":   cmdExpand,
	"setout":   cmdSetOut,
	"image":    cmdImage, "bundle": cmdBundle,
}

// cmdCluster starts a cluster in $C: `cluster N [FILE]` with N nodes, and the lines of FILE at the end of its configuration;
// `cluster conf FILE` with a configuration of its own.
func cmdCluster(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: cluster N [FILE] | cluster conf FILE")
	}
	dir := ts.Getenv("C")
	if args[0] == "conf" {
		ts.Check(ts.Exec("sluice", "up", "--dir", dir, "--conf", ts.MkAbs(args[1])))
		ts.Setenv("SLURM_CONF", ts.MkAbs(args[1]))
	} else {
		ts.Check(ts.Exec("sluice", "up", "--dir", dir, "--nodes", args[0]))
		ts.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
	}
	ts.Setenv("SLUICE_SOCKET", filepath.Join(dir, "run", "ctld.sock"))
	if args[0] != "conf" && len(args) > 1 {
		appendConf(ts, args[1])
		ts.Check(ts.Exec("scontrol", "reconfigure"))
	}
}

func appendConf(ts *testscript.TestScript, file string) {
	f, err := os.OpenFile(ts.Getenv("SLURM_CONF"), os.O_APPEND|os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteString(os.Expand(ts.ReadFile(file), ts.Getenv))
	ts.Check(err)
	ts.Check(f.Close())
}

// cmdExpand replaces $NAME in a file by the script's variables.
func cmdExpand(ts *testscript.TestScript, _ bool, args []string) {
	for _, file := range args {
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(os.Expand(ts.ReadFile(file), ts.Getenv)), 0o644))
	}
}

// cmdSubmit runs `sbatch --parsable` and puts the job's id into a variable: submit VAR [as] ARGUMENT….
func cmdSubmit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: submit VAR [as] ARGUMENT…")
	}
	argv := append([]string{"sbatch", "--parsable"}, args[1:]...)
	if args[1] == "as" {
		argv = append([]string{"as", "sbatch", "--parsable"}, args[2:]...)
	}
	if err := ts.Exec(argv[0], argv[1:]...); err != nil {
		ts.Fatalf("%q: %v: %s", argv, err, ts.ReadFile("stderr"))
	}
	id, _, _ := strings.Cut(strings.TrimSpace(ts.ReadFile("stdout")), ";")
	if _, err := strconv.Atoi(id); err != nil {
		ts.Fatalf("sbatch --parsable printed %q", ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], id)
}

// cmdImage writes an image for containers: image FILE.
func cmdImage(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(containertest.Archive(ts.MkAbs(args[0]), "OF_IMAGE=image"))
}

// cmdBundle makes an OCI bundle: bundle DIRECTORY.
func cmdBundle(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(dir, 0o755))
	ts.Check(containertest.Bundle(dir, nil, "OF_BUNDLE=bundle"))
}

// cmdSetOut puts the last command's output into a variable.
func cmdSetOut(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// poll runs a check until it is content. It pauses between two checks because commands have no way to tell of a change.
func poll(ts *testscript.TestScript, check func() (ok bool, saw string)) {
	deadline := time.Now().Add(patience)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		ok, saw := check()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited %s in vain; saw last: %s%s", patience, saw, logTails(ts))
		}
		time.Sleep(pause)
	}
}

func logTails(ts *testscript.TestScript) string {
	var b strings.Builder
	logs, _ := filepath.Glob(filepath.Join(ts.Getenv("C"), "log", "*"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "\n%s:\n%s", path, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return b.String()
}

// output runs a program of ours in the script's environment, without putting it into the script's log.
func output(ts *testscript.TestScript, name string, args ...string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(bin, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+ts.Getenv("SLURM_CONF"), "SLUICE_SOCKET="+ts.Getenv("SLUICE_SOCKET"), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// cmdWaitJob waits until a job is in one of the states: waitjob ID STATE…; a state may be followed by a reason: PENDING,Resources.
func cmdWaitJob(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waitjob ID STATE[,REASON]…")
	}
	poll(ts, func() (bool, string) {
		out, err := output(ts, "scontrol", "-o", "show", "job", args[0])
		if err != nil {
			return false, out
		}
		state, reason := field(out, "JobState"), field(out, "Reason")
		for _, want := range args[1:] {
			if want == state || want == state+","+reason {
				return true, ""
			}
		}
		return false, fmt.Sprintf("job %s is %s, reason %s, not %s\n%s", args[0], state, reason, args[1:], out)
	})
}

// field finds key=value in a line of `scontrol -o show`; a value ends at the next blank.
func field(line, key string) string {
	_, rest, ok := strings.Cut(" "+line, " "+key+"=")
	if !ok {
		return ""
	}
	return strings.Fields(rest + " ")[0]
}

// cmdWaitNode waits until sinfo shows a node in a state: waitnode n1 idle.
func cmdWaitNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitnode NODE STATE")
	}
	poll(ts, func() (bool, string) {
		out, err := output(ts, "sinfo", "-h", "-N", "-n", args[0], "-o", "%T")
		state := strings.TrimSpace(out)
		return err == nil && state == args[1], fmt.Sprintf("node %s is %q, not %q", args[0], state, args[1])
	})
}

// cmdWaitFile waits until a file has a line that matches: waitfile FILE REGEXP.
func cmdWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfile FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	poll(ts, func() (bool, string) {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(b), fmt.Sprintf("%s: %v %q", args[0], err, b)
	})
}

// cmdWaitFor runs a command until its output matches: waitfor REGEXP COMMAND….
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waitfor REGEXP COMMAND…")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	poll(ts, func() (bool, string) {
		out, err := output(ts, args[1], args[2:]...)
		return re.MatchString(out), fmt.Sprintf("%v %q", err, out)
	})
}

// cmdKill9 kills a daemon of the cluster by its record, and waits until it is dead: kill9 ctld | noded.n1.
func cmdKill9(ts *testscript.TestScript, neg bool, args []string) {
	var rec struct {
		Daemons map[string]struct {
			PID int `json:"pid"`
		} `json:"daemons"`
	}
	b, err := os.ReadFile(filepath.Join(ts.Getenv("C"), "cluster.json"))
	ts.Check(err)
	ts.Check(json.Unmarshal(b, &rec))
	for _, name := range args {
		pid := rec.Daemons[name].PID
		if pid <= 0 {
			ts.Fatalf("no daemon %s in %s", name, b)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		ts.Check(err)
		ts.Check(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
		// Readable once the last thread is gone: until then the port is held, though the process shows as a zombie already.
		poll(ts, func() (bool, string) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n == 1, fmt.Sprintf("process %d lives", pid)
		})
		_ = unix.Close(fd)
	}
}
