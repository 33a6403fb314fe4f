package sbatch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// loginTimeoutS bounds the login shell when --get-user-env names no other time (sbatch(1)).
const loginTimeoutS = 8

// loginEnvironment is what a login shell of the user has in its environment, as "su - USER -c env" shows it. When the shell
// does not answer in time, what every login has is given, with the error.
func loginEnvironment(user accounts.Account, option string) ([]string, error) {
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	cmd := loginCommand(ctx, user, mode)
	cmd.Env, cmd.Dir, cmd.WaitDelay = append(least, "TERM=dumb"), "/", time.Second
	out, err := cmd.Output()
	vars := betweenMarks(string(out))
	if vars == nil && noLogin(user.Shell) {
		return least, nil // there is no other login environment
	}
	if vars == nil {
		if err == nil {
			err = fmt.Errorf("no environment in its output")
		}
		return least, fmt.Errorf("cannot load the login environment of %s: %w", user.Name, err)
	}
	return vars, nil
}

// noLogin: an account that nobody logs in to has nothing to lose.
func noLogin(shell string) bool {
	switch filepath.Base(shell) {
	case "nologin", "false", "true":
		return true
	}
	return false
}

// mark separates the environment from what the user's login files print.
const mark = "_SLUICE_ENVIRONMENT_"

func loginCommand(ctx context.Context, user accounts.Account, mode string) *exec.Cmd {
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
