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

// letters are the options of slurmctld(8), which wrappers and units of Slurm's daemon have.
var letters = slurmargs.Options{Flags: "cdDhirRsvV", Values: "fLn", Long: []string{"conf", "state", "socket", "listen", "metrics",
	"certificate-life", "log", "pid-file", "verbose", "nice", "clear", "help", "version"},
	Bare: []string{"verbose", "clear", "help", "version"}}

// verbose is how often -v was given.
var verbose int

// vain are options of slurmctld(8) that have no effect, and why.
var vain = []struct{ letter, why string }{
	{"d", "it stays in the foreground: the service manager, or the shell, has it in the background"},
	{"i", "a damaged database is never ignored: sluice-ctld restore replaces it by a backup"},
	{"r", "all that is in the database is always recovered"},
	{"R", "all that is in the database is always recovered"},
	{"s", "the working directory stays as it is; where core files go, the kernel's core_pattern says"},
}

// obey does what the options of slurmctld(8) say, and says in the log which have no effect.
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

// mayClear refuses -c where there is something to lose: jobs, and the certificates of hosts, would be gone with one letter.
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
	return fmt.Errorf("-c would delete all jobs, states of nodes and certificates of hosts in %s: to end jobs, start without it and use "+
		"scancel; for a new cluster, move that directory away", dir)
}
