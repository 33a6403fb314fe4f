package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/conf/slurmargs"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/urfave/cli/v2"
)

// letters are the options of slurmctld(8), which wrappers and units for Slurm's daemon use.
var letters = slurmargs.Options{Flags: "cdDhirRsvV", Values: "fLn", Long: []string{"conf", "state", "socket", "listen", "metrics",
	"certificate-life", "log", "pid-file", "verbose", "nice", "clear", "help", "version"},
	Bare: []string{"verbose", "clear", "help", "version"}}

// verbose counts -v.
var verbose int

// vain are options of slurmctld(8) without effect, and the reason.
var vain = []struct{ letter, why string }{
	{"d", "it stays in the foreground; use the service manager, or & in a shell"},
	{"i", "a damaged database is never ignored: sluice-ctld restore replaces it with a backup"},
	{"r", "the whole database is always recovered"},
	{"R", "the whole database is always recovered"},
	{"s", "the working directory does not change; the kernel's core_pattern determines where core files go"},
}

// obey applies the options of slurmctld(8), and logs those without effect.
func obey(c *cli.Context, log *slog.Logger) error {
	for _, v := range vain {
		if c.Bool(v.letter) {
			log.Info("option without effect", "option", "-"+v.letter, "why", v.why)
		}
	}
	if filepath.Base(os.Args[0]) == "slurmctld" && !c.Bool("D") && !c.Bool("d") {
		log.Info("the controller stays in the foreground, as slurmctld -D does")
	}
	if c.IsSet("nice") {
		if err := inherit.Nice(c.Int("nice")); err != nil {
			return err
		}
	}
	if c.Bool("clear") {
		return mayClear(c)
	}
	return nil
}

// mayClear rejects -c if there is a database: one letter would delete all jobs and the certificates of hosts.
func mayClear(c *cli.Context) error {
	dir, err := needState(c)
	if err != nil {
		return err
	}
	switch _, err := os.Stat(filepath.Join(dir, "sluice.db")); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("-c would delete all jobs, node states and host certificates in %s: to cancel jobs, start without -c and use "+
		"scancel; for a new cluster, move that directory away", dir)
}
