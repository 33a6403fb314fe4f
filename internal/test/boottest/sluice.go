package boottest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// Commands are the names under which the program sluice is installed on hosts.
var Commands = []string{"sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct"}

// Build puts the programs into a directory: copies from built, or if that is "" new builds. These are without cgo, because the
// hosts have another libc than the machine.
func Build(bin, built string) error {
	if built != "" {
		return daemontest.Programs(bin, built)
	}
	cmd := exec.Command("go", "build", "-o", bin+"/", "./cmd/sluice", "./cmd/sluice-steps", "./cmd/sluice-ctld", "./cmd/sluice-noded")
	cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	return nil
}

// Installed returns arguments of Boot for a host on which the programs in a directory and the files of deploy/systemd are installed
// as by our packages.
func Installed(bin string) (files, bind map[string]string, err error) {
	files = map[string]string{}
	bind = map[string]string{"/usr/bin/sluice": filepath.Join(bin, "sluice"), "/usr/sbin/sluice-ctld": filepath.Join(bin, "sluice-ctld"),
		"/usr/sbin/sluice-noded": filepath.Join(bin, "sluice-noded"), "/usr/bin/sluice-steps": filepath.Join(bin, "sluice-steps")}
	for _, name := range Commands {
		files["/usr/bin/"+name] = "-> sluice"
	}
	units, err := filepath.Glob("../../../deploy/systemd/*")
	if err != nil {
		return nil, nil, err
	}
	for _, path := range units {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		if at := Place(filepath.Base(path)); at != "" {
			files[at] = string(text)
		}
	}
	return files, bind, nil
}

// Place returns where a file of deploy/systemd is installed; "" if it is not.
func Place(name string) string {
	switch {
	case strings.HasSuffix(name, ".service"):
		return "/usr/lib/systemd/system/" + name
	case name == "sysusers.conf":
		return "/usr/lib/sysusers.d/sluice.conf"
	case name == "logrotate":
		return "/etc/logrotate.d/sluice"
	}
	return ""
}
