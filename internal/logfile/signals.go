package logfile

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals gives SIGHUP and SIGUSR2, which ask a daemon to read its configuration and to open its log again (slurmctld(8), slurmd(8)), and
// has it ignore those that Slurm's daemons ignore. These are caught, not set to be ignored: programs that the daemon starts would inherit
// that, the users' jobs among them.
func Signals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1, syscall.SIGALRM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGXCPU)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGUSR2)
	return c
}
