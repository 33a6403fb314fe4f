package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeEnv writes DIR/env.sh, which any POSIX shell can source, any number of times.
func (p *plan) writeEnv() error {
	text := fmt.Sprintf(`# Points this shell at the cluster in %[1]s:  . %[2]s
case "$PATH:" in
%[3]s:*) ;;
*) PATH=%[3]s:$PATH ;;
esac
export PATH
export SLURM_CONF=%[4]s
export SLUICE_SOCKET=%[5]s
`, strings.ReplaceAll(string(p.dir), "\n", " "), strings.ReplaceAll(p.dir.envFile(), "\n", " "), quote(p.bin), quote(p.confPath), quote(p.dir.socket()))
	return replaceFile(p.dir.envFile(), []byte(text))
}

// quote quotes a text as one shell word.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// findCommands finds the directory with all commands: that of this program, or else (own) DIR/bin with links to the program.
func (p *plan) findCommands(commands []string) (self string, own bool, err error) {
	self, err = os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot find the directory of the commands: %w", err)
	}
	self = filepath.Join(filepath.Dir(self), "sluice")
	if !executable(self) {
		if self, err = Program("sluice"); err != nil {
			return "", false, err
		}
	}
	if p.bin = filepath.Dir(self); hasAll(p.bin, commands) {
		return self, false, nil
	}
	p.bin = p.dir.join("bin")
	return self, true, nil
}

// linkCommands fills DIR/bin.
func (p *plan) linkCommands(self string, commands []string) error {
	if err := os.Mkdir(p.bin, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create the directory of the commands: %w", err)
	}
	for _, name := range append([]string{"sluice"}, commands...) {
		link := filepath.Join(p.bin, name)
		_ = os.Remove(link)
		if err := os.Symlink(self, link); err != nil {
			return fmt.Errorf("cannot link the command %s: %w", name, err)
		}
	}
	return nil
}

func hasAll(dir string, commands []string) bool {
	for _, name := range commands {
		if !executable(filepath.Join(dir, name)) {
			return false
		}
	}
	return len(commands) > 0
}
