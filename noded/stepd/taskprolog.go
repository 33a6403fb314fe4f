package stepd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// maxTaskProlog bounds the output of a TaskProlog.
const maxTaskProlog = 1 << 20

// taskProlog runs one program as the task, with its environment, and obeys its output (slurm.conf(5), TaskProlog): "export
// NAME=value", "unset NAME", "print text". Other lines are ignored, and its standard error is discarded. A program that fails
// ends the task with its exit code, as in Slurm 22.05.
func taskProlog(program string, env []string) ([]string, error) {
	cmd := exec.Command(program)
	cmd.Env = env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return env, fmt.Errorf("cannot run TaskProlog %s: %s", program, sentence(err))
	}
	said, rerr := io.ReadAll(io.LimitReader(out, maxTaskProlog))
	out.Close()
	if err := cmd.Wait(); err != nil {
		return env, &prologError{err}
	}
	if rerr != nil {
		return env, fmt.Errorf("cannot read the output of TaskProlog %s: %w", program, rerr)
	}
	env, text := obey(said, env)
	_, _ = os.Stdout.Write(text)
	return env, nil
}

type prologError struct{ error }

func (e *prologError) Error() string { return fmt.Sprintf("TaskProlog failed status=%d", exitCode(e)) }
func (e *prologError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var x *exec.ExitError
	if errors.As(err, &x) && x.ExitCode() > 0 {
		return x.ExitCode()
	}
	return 1
}

// obey returns the environment after the lines of said, and the text that they print.
func obey(said []byte, env []string) ([]string, []byte) {
	var text bytes.Buffer
	for line := range bytes.Lines(said) {
		verb, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch verb {
		case "export":
			if name, value, ok := strings.Cut(rest, "="); ok && validName(name) {
				env = setEnv(env, name, value)
			}
		case "unset":
			env = unsetEnv(env, strings.TrimSpace(rest))
		case "print":
			text.WriteString(rest + "\n")
		}
	}
	return env, text.Bytes()
}

func validName(name string) bool { return name != "" && !strings.ContainsAny(name, " \t\x00") }

func setEnv(env []string, name, value string) []string {
	value, _, _ = strings.Cut(value, "\x00")
	return append(unsetEnv(env, name), name+"="+value)
}

func unsetEnv(env []string, name string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if n, _, _ := strings.Cut(kv, "="); n != name {
			kept = append(kept, kv)
		}
	}
	return kept
}
