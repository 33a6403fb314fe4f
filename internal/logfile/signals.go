package logfile

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals returns SIGHUP and SIGUSR2, which ask a daemon to reread its configuration and reopen its log (slurmctld(8), slurmd(8)).
// It also discards the signals that Slurm's daemons ignore. These are caught rather than ignored: children, including users' jobs,
// would inherit ignored signals.
func Signals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1, syscall.SIGALRM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGXCPU)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGUSR2)
	return c
}
