package crashtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// user is somebody of the suite's own directory, with a folder of his own.
type user struct {
	c    *cluster
	uid  int
	home string
}

// nextUID begins where nobody is, nor another run of this suite.
var nextUID atomic.Int64

func init() { nextUID.Store(1_500_000_000 + int64(os.Getpid()%1_000_000)*100) }

// directory is getent(1) for the daemons, with an account for each of these uids: those without one may not submit.
const directory = `#!/bin/sh
case "$1 $3" in
"passwd 15"[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]) echo "$3:*:$3:$3::/:/bin/sh" ;;
*) exec /usr/bin/getent "$@" ;;
esac
`

func newUser(c *cluster, name string) *user {
	c.t.Helper()
	u := &user{c: c, uid: int(nextUID.Add(1)), home: filepath.Join(c.dir, name)}
	if left := daemontest.ProcessesOfUser(u.uid); len(left) > 0 {
		c.t.Fatalf("uid %d is in use: %s", u.uid, daemontest.CommandLine(left[0]))
	}
	must(c.t, os.MkdirAll(u.home, 0o755))
	must(c.t, os.Chown(u.home, u.uid, u.uid))
	return u
}

// file makes a file of the user's.
func (u *user) file(name, text string, mode os.FileMode) string {
	u.c.t.Helper()
	path := filepath.Join(u.home, name)
	must(u.c.t, os.WriteFile(path, []byte(text), mode))
	must(u.c.t, os.Chmod(path, mode))
	must(u.c.t, os.Chown(path, u.uid, u.uid))
	return path
}

// command is a command that the user runs in his folder.
func (u *user) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = u.home, append(u.c.clientEnv(), "HOME="+u.home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}}
	return cmd
}

// sbatch submits a script with options and arguments and returns the job's id.
func (u *user) sbatch(script string, options []string, args ...string) uint32 {
	u.c.t.Helper()
	path := u.file("job.sh", script, 0o755)
	out, err := u.command(filepath.Join(bin, "sbatch"), slices.Concat([]string{"--parsable"}, options, []string{path},
		args)...).CombinedOutput()
	id, perr := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 32)
	if err != nil || perr != nil {
		u.c.t.Fatalf("sbatch: %v: %s", err, out)
	}
	return uint32(id)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
