package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-hpc/sluice/conf/slurmargs"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/pidfile"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

// letters are the options of slurmd(8), which wrappers and units for Slurm's daemon use.
var letters = slurmargs.Options{Flags: "bcCDhMsvVZ", Values: "dfLnN", Long: []string{"conf", "conf-server", "publish", "node",
	"dynamic", "Z", "node-conf", "login", "relay", "spool", "tls", "join", "join-only", "controller", "socket", "gpus", "no-gpu-files",
	"allow-root-jobs", "log", "pid-file", "hardware", "verbose", "nice", "lock-memory", "help", "version"},
	Bare: []string{"dynamic", "login", "join-only", "no-gpu-files", "allow-root-jobs", "hardware", "verbose", "lock-memory", "help",
		"version"}}

// verbose counts -v.
var verbose int

// vain are options of slurmd(8) without effect, and the reason.
var vain = []struct{ letter, why string }{
	{"b", "the kernel's boot id shows whether the host was rebooted"},
	{"c", "the daemon has no lock files that could be stale"},
	{"d", "the job shim is part of this program"},
	{"s", "the working directory does not change; the kernel's core_pattern determines where core files go"},
}

// obey applies the options of slurmd(8), and logs those without effect.
func obey(c *cli.Context, log *slog.Logger) error {
	for _, v := range vain {
		if c.IsSet(v.letter) {
			log.Info("option without effect", "option", "-"+v.letter, "why", v.why)
		}
	}
	if filepath.Base(os.Args[0]) == "slurmd" && !c.Bool("D") {
		log.Info("the node daemon stays in the foreground, as slurmd -D does")
	}
	if c.Bool("lock-memory") { // lock pages on first use, not reserved ones
		if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
			log.Warn("cannot lock the daemon in memory", "err", err)
		}
	}
	if c.IsSet("nice") {
		return inherit.Nice(c.Int("nice"))
	}
	return nil
}

// printHardware prints a NodeName line and the uptime like slurmd -C (slurmd(8)).
func printHardware(w io.Writer, p hw.Prober, now func() time.Time) error {
	inv, err := p.Inventory()
	if err != nil {
		return err
	}
	sockets, cores, threads := inv.Topology.Counts()
	up := int64(now().Sub(time.Unix(0, inv.BootNS)).Seconds())
	_, err = fmt.Fprintf(w, "NodeName=%s CPUs=%d Boards=1 SocketsPerBoard=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d\n"+
		"UpTime=%d-%02d:%02d:%02d\n", inv.Hostname, len(inv.Topology), sockets, cores, threads, inv.MemoryMiB,
		up/86400, up/3600%24, up/60%60, up%60)
	return err
}

// writePid writes the daemon's process id to a file; "" and none mean no file. The daemon continues without one. remove is called
// at its end.
func writePid(path string, log *slog.Logger) (remove func()) {
	if path == "" || path == "none" {
		return func() {}
	}
	f, err := pidfile.Write(path, uint32(os.Geteuid()))
	if err != nil {
		log.Warn("cannot write the pid file", "file", path, "err", err)
	}
	return func() {
		if err := f.Remove(); err != nil {
			log.Warn("cannot remove the pid file", "file", path, "err", err)
		}
	}
}
