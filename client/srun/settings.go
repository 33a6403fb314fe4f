package srun

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
)

// settings holds the parameters of slurm.conf that srun uses.
type settings struct {
	portRange     string
	killOnBadExit bool
	waitS         uint32
	killWaitS     uint32
	fileAppend    bool
	prolog        string
	epilog        string
	mpi           string
}

func readSettings(getenv func(string) string) settings {
	v := client.Settings(getenv, "SrunPortRange", "KillOnBadExit", "WaitTime", "KillWait", "JobFileAppend", "SrunProlog", "SrunEpilog",
		"MpiDefault")
	s := settings{portRange: strings.Trim(v[0], "\""), killOnBadExit: yes(v[1]), fileAppend: yes(v[4]), killWaitS: 30,
		prolog: v[5], epilog: v[6]}
	if s.mpi = v[7]; s.mpi == "" {
		s.mpi = "none"
	}
	if s.portRange == "0-0" || s.portRange == "0" {
		s.portRange = ""
	}
	if n, err := strconv.ParseUint(v[2], 10, 16); err == nil {
		s.waitS = uint32(n)
	}
	if n, err := strconv.ParseUint(v[3], 10, 16); err == nil {
		s.killWaitS = uint32(n)
	}
	return s
}

func yes(v string) bool { return v == "1" || strings.EqualFold(v, "yes") }
