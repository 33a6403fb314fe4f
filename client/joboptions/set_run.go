package joboptions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// Run has the options of srun and salloc that are not about the job: how to run tasks, and what the command itself does.
type Run struct {
	// for srun
	Label, Unbuffered, Pty, Overlap, Exact, Interactive, PreserveEnv, MultiProg bool
	DisableStatus, QuitOnInterrupt                                              bool
	KillOnBadExit                                                               Tristate
	Wait                                                                        uint32 // seconds after the end of the first task
	WaitGiven                                                                   bool
	Relative                                                                    uint32
	RelativeGiven                                                               bool
	JobID                                                                       string
	CPUBind, MPI, TaskProlog, TaskEpilog, Prolog, Epilog                        string
	CPUBindHelp, MPIList                                                        bool
	Bcast, Compress, SendLibs, CompressGiven                                    bool
	BcastTo, BcastExclude, CompressBy                                           string
	// for both
	Immediate      uint32 // seconds
	ImmediateGiven bool
	// for salloc
	NoShell      bool
	Kill         string // signal for the command when the allocation is revoked
	KillGiven    bool
	Bell, NoBell bool
}

// Tristate is yes, no, or not given.
type Tristate uint8

const (
	NotSaid Tristate = iota
	Yes
	No
)

func runFlag(field func(*Run) *bool) func(*Request, string, bool) error {
	return func(r *Request, _ string, _ bool) error { *field(&r.Run) = true; return nil }
}

func runText(option string, field func(*Run) *string) func(*Request, string, bool) error {
	return func(r *Request, v string, _ bool) error { *field(&r.Run) = v; return printable(option, v) }
}

// setAccepted accepts a number and ignores it.
func setAccepted(option string) func(*Request, string, bool) error {
	return func(r *Request, v string, given bool) error {
		if given && v != "" {
			_, err := number(option, v, 0)
			return err
		}
		return nil
	}
}

func setSendLibs(r *Request, v string, given bool) error {
	switch strings.ToLower(v) {
	case "yes", "true", "1", "y", "t", "on":
		r.Run.SendLibs = true
	case "no", "false", "0", "n", "f", "off":
		r.Run.SendLibs = false
	default:
		if given && v != "" {
			return invalid("send-libs", v, "expected yes or no")
		}
		r.Run.SendLibs = true
	}
	return nil
}

// OneComponent rejects a heterogeneous job: its components are separated by a colon as a word of its own, at any position.
func OneComponent(words []string) error {
	if !slices.Contains(words, ":") {
		return nil
	}
	return &opt.ValueError{Lines: []string{"heterogeneous jobs are not supported"}, Exit: 1,
		Hint: "a single : separates their components, even among the arguments of a command; submit each component as its own job"}
}

// Separator reports whether a directive separates the components of a heterogeneous job.
func Separator(word string) bool { return word == "hetjob" || word == "packjob" }

// setRefused rejects an option of Slurm's that this program does not have.
func setRefused(option, why string) func(*Request, string, bool) error {
	return func(*Request, string, bool) error {
		return &opt.ValueError{Lines: []string{"--" + option + " is not supported"}, Hint: why, Exit: 1}
	}
}

func setKillOnBadExit(r *Request, value string, given bool) error {
	r.Run.KillOnBadExit = Yes
	if !given || value == "" {
		return nil
	}
	n, err := number("kill-on-bad-exit", value, 0)
	if err == nil && n == 0 {
		r.Run.KillOnBadExit = No
	}
	return err
}

func setWaitSeconds(r *Request, value string, _ bool) error {
	n, err := number("wait", value, 0)
	r.Run.Wait, r.Run.WaitGiven = n, true
	return err
}

func setRelative(r *Request, value string, _ bool) error {
	n, err := number("relative", value, 0)
	r.Run.Relative, r.Run.RelativeGiven = n, true
	return err
}

func setImmediate(r *Request, value string, given bool) error {
	r.Run.Immediate, r.Run.ImmediateGiven = 1, true
	if !given || value == "" {
		return nil
	}
	n, err := number("immediate", value, 0)
	if err != nil {
		return err
	}
	r.Run.Immediate, r.Run.ImmediateGiven = n, n > 0
	return nil
}

func setJobID(r *Request, value string, _ bool) error {
	if n, err := strconv.ParseUint(value, 10, 32); err != nil || n == 0 {
		return invalidNumber("jobid", value, "expected the number of a job")
	}
	r.Run.JobID = value
	return nil
}

func setCPUBind(r *Request, value string, _ bool) error {
	words := strings.Split(strings.ToLower(value), ",")
	for len(words) > 0 { // the numbers after map_cpu: are separate words
		word := words[0]
		kind, list, has := strings.Cut(word, ":")
		if !has {
			kind, list, has = strings.Cut(word, "=")
		}
		words = words[1:]
		switch kind {
		case "help":
			r.Run.CPUBindHelp = true
		case "quiet", "q", "verbose", "v", "no", "n", "none", "rank", "rank_ldom", "sockets", "socket", "cores", "core", "threads",
			"thread", "ldoms", "ldom", "boards", "board", "one_thread", "off":
		case "map_cpu", "mapcpu", "map_ldom", "mapldom", "mask_cpu", "maskcpu", "mask_ldom", "maskldom":
			if !has || list == "" {
				return badBind(value, "a list of numbers follows "+kind+":")
			}
			words = nil
		default:
			return badBind(word, "expected none, rank, map_cpu:…, mask_cpu:…, sockets, cores, threads, ldoms; --cpu-bind=help says more")
		}
	}
	r.Run.CPUBind = value
	return printable("cpu-bind", value)
}

func badBind(value, hint string) error {
	return &opt.ValueError{Plain: []string{fmt.Sprintf("srun: error: unrecognized --cpu-bind argument \"%s\"", opt.Quoted(value))},
		Lines: []string{"Failed to parse --cpu-bind= values."}, Fatal: true, Exit: 1, Hint: hint}
}

func setMPI(r *Request, value string, _ bool) (err error) {
	if value == "list" {
		r.Run.MPIList = true
		return nil
	}
	r.Run.MPI, err = MPIType(value)
	return err
}

// MPIType reads --mpi or MpiDefault: none, pmi2 or pmix. Slurm's names for versions of PMIx are equivalent here: the nodes' libpmix
// works with programs of any of these versions.
func MPIType(value string) (string, error) {
	switch value {
	case "none", "openmpi": // as in Slurm
		return "none", nil
	case "pmi2":
		return value, nil
	case "pmix", "pmix_v2", "pmix_v3", "pmix_v4", "pmix_v5":
		return "pmix", nil
	}
	return "", &opt.ValueError{Lines: []string{"Invalid MPI type '" + opt.Quoted(value) + "', --mpi=list for acceptable types"}, Exit: 1,
		Hint: "supported types are none, pmi2 and pmix"}
}

func setKillCommand(r *Request, value string, given bool) error {
	r.Run.KillGiven = true
	if !given || value == "" {
		return nil
	}
	if _, ok := Signal(value); !ok {
		return &opt.ValueError{Lines: []string{"Unable to parse signal " + opt.Quoted(value)}, Exit: 1,
			Hint: "expected a name or number, as in -KTERM"}
	}
	r.Run.Kill = value
	return nil
}
