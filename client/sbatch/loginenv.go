package sbatch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// loginTimeoutS is the default timeout of the login shell for --get-user-env (sbatch(1)).
const loginTimeoutS = 8

// loginEnvironment returns the environment of the user's login shell, as "su - USER -c env" prints it. If the shell does not answer
// in time, it returns the variables of every login, and an error.
func loginEnvironment(ctx context.Context, user passwd.Account, option string) ([]string, error) {
	least := []string{"HOME=" + user.Home, "USER=" + user.Name, "LOGNAME=" + user.Name, "SHELL=" + user.Shell,
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}
	seconds, mode := loginTimeoutS, "L"
	digits := strings.TrimRight(option, "SsLl")
	if n, err := strconv.Atoi(digits); err == nil && n > 0 {
		seconds = n
	}
	if len(digits) < len(option) {
		mode = strings.ToUpper(option[len(digits):])
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	defer cancel()
	cmd := loginCommand(ctx, user, mode)
	cmd.Env, cmd.Dir, cmd.WaitDelay = append(least, "TERM=dumb"), "/", time.Second
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	out, err := cmd.Output()
	vars := betweenMarks(string(out))
	if vars == nil {
		endDescendants()
	}
	if vars == nil && noLogin(user.Shell) {
		return least, nil // there is no login environment
	}
	if vars == nil {
		if err == nil {
			err = fmt.Errorf("no environment in its output")
		}
		return least, fmt.Errorf("cannot load the login environment of %s: %w", user.Name, err)
	}
	return vars, nil
}

// endDescendants kills the processes left by a failed login: su(1) gives the shell a session of its own and does not kill the
// processes that the shell waits for. This process is their subreaper, so orphans become its children.
func endDescendants() {
	for range 1000 { // something may fork as fast as it is killed
		pids := descendants(os.Getpid())
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
		if len(pids) == 0 {
			return
		}
	}
}

func descendants(root int) (below []int) {
	children := map[int][]int{}
	list, _ := os.ReadDir("/proc")
	for _, d := range list {
		pid, _ := strconv.Atoi(d.Name())
		raw, _ := os.ReadFile("/proc/" + d.Name() + "/stat")
		// "PID (NAME) STATE PARENT …", where the name may contain anything
		if f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]); pid > 0 && len(f) > 1 {
			parent, _ := strconv.Atoi(string(f[1]))
			children[parent] = append(children[parent], pid)
		}
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		below = append(below, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return below
}

// noLogin reports whether the account cannot log in, so that a failed login is not an error.
func noLogin(shell string) bool {
	switch filepath.Base(shell) {
	case "nologin", "false", "true":
		return true
	}
	return false
}

// mark separates the environment from the output of the user's login files.
const mark = "_SLUICE_ENVIRONMENT_"

func loginCommand(ctx context.Context, user passwd.Account, mode string) *exec.Cmd {
	const show = "printf '\\0" + mark + "\\0'; env -0; printf '" + mark + "\\0'"
	switch {
	case os.Getuid() == 0 && user.UID != 0 && mode == "S":
		return exec.CommandContext(ctx, "su", user.Name, "-c", show)
	case os.Getuid() == 0 && user.UID != 0:
		return exec.CommandContext(ctx, "su", "-", user.Name, "-c", show)
	case mode == "S":
		return exec.CommandContext(ctx, user.Shell, "-c", show)
	}
	return exec.CommandContext(ctx, user.Shell, "-l", "-c", show)
}

func betweenMarks(out string) []string {
	_, rest, ok := strings.Cut(out, mark+"\x00")
	if !ok {
		return nil
	}
	text, _, ok := strings.Cut(rest, mark+"\x00")
	if !ok {
		return nil
	}
	vars := []string{}
	for _, v := range strings.Split(text, "\x00") {
		name, _, ok := strings.Cut(v, "=")
		if ok && name != "" && name != "_" && name != "SHLVL" && name != "PWD" && name != "OLDPWD" && name != "TERM" &&
			!strings.HasPrefix(name, "BASH_FUNC_") {
			vars = append(vars, v)
		}
	}
	return vars
}
