package cli

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// adminName is the program that holds the verbs which are not Slurm's commands: what they are linked with (the whole
// configuration, a command line library) would make every sbatch start a quarter slower.
const adminName = "sluice-admin"

// Verbs are those of `sluice` that are not Slurm's commands, with a line of help each.
func Verbs() [][2]string {
	return [][2]string{
		{"up", "start a cluster on this machine"},
		{"down", "stop it"},
		{"conf", "check a slurm.conf (conf check FILE)"},
	}
}

// Names are Slurm's commands, under which the program is installed too.
func Names() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// sluice runs `sluice VERB …`: any of Slurm's commands by name, or a verb of its own.
func sluice(env *Env, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		sluiceHelp(env)
		return 0
	}
	if args[0] == "commands" && len(args) == 1 {
		for _, name := range Names() {
			fmt.Fprintln(env.Stdout, name)
		}
		return 0
	}
	if args[0] == "completion" && len(args) == 2 && args[1] == "bash" {
		fmt.Fprint(env.Stdout, completionBash())
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ProcessEnv(c.name), args[1:])
		}
	}
	return becomeAdmin(env, args)
}

func sluiceHelp(env *Env) {
	fmt.Fprintln(env.Stdout, "usage: sluice COMMAND [arguments]\n\nA cluster:")
	for _, v := range Verbs() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", v[0], v[1])
	}
	fmt.Fprintln(env.Stdout, "\nSlurm's commands (also installed under their own names):")
	for _, c := range commands() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", c.name, c.help)
	}
	fmt.Fprintln(env.Stdout, "\n`sluice COMMAND --help` says more about each; `sluice commands` lists the names of Slurm's commands,\n`sluice completion bash` prints completions for bash.")
}

// becomeAdmin replaces this process; it returns only when that fails.
func becomeAdmin(env *Env, args []string) int {
	path, err := adminPath()
	if err == nil {
		err = &fs.PathError{Op: "execute", Path: path, Err: syscall.Exec(path, append([]string{"sluice"}, args...), env.Environ)}
	}
	fmt.Fprintf(env.Stderr, "sluice: cannot run %q: %v; is Sluice installed as a whole?\n", args[0], err)
	return 1
}

func adminPath() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		for _, dir := range []string{".", "../libexec/sluice"} {
			path := filepath.Join(filepath.Dir(self), dir, adminName)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return exec.LookPath(adminName)
}
