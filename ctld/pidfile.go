package ctld

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/pidfile"
)

// pidFile returns the path from --pid-file or slurm.conf for the controller's process id, "" for none.
func (d *daemon) pidFile(c *conf.Config) string {
	path := cmp.Or(d.opts.PidFile, c.SlurmctldPidFile)
	if path == "none" {
		return ""
	}
	return path
}

// becomeWithPid is becomeSlurmUser, and writes the pid file: with root's rights if only root can change its directory, otherwise, because
// root could be misled, with SlurmUser's. A controller without a pid file continues. remove is for its end.
func (d *daemon) becomeWithPid(c *conf.Config) (remove func(), err error) {
	path := d.pidFile(c)
	var f *pidfile.File
	var failed error
	write := func() { f, failed = pidfile.Write(path, uint32(os.Geteuid())) }
	early := os.Geteuid() == 0 && onlyRootChanges(path)
	if path != "" && early {
		write()
	}
	if err := d.becomeSlurmUser(c); err != nil {
		_ = f.Remove()
		return nil, err
	}
	if path != "" && !early {
		write()
	}
	if failed != nil {
		about := []any{"file", path, "err", failed}
		if dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); dir != "" {
			about = append(about, "help", "this service can write to SlurmctldPidFile="+filepath.Join(dir, "slurmctld.pid"))
		}
		d.log.Warn("cannot write the pid file", about...)
	}
	return func() {
		if err := f.Remove(); err != nil {
			d.log.Warn("cannot remove the pid file", "file", path, "err", err)
		}
	}, nil
}
