package reactor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// moreSetters adds the keys for requests other than nodes, CPUs and memory.
func moreSetters() {
	devices := func(field func(*pb.JobSpec) *string) jobSetter {
		return func(e *jobEdit, key, value string) *pb.Problem { return setDevices(e, field(e.job.Spec), key, value) }
	}
	perNode := devices(func(s *pb.JobSpec) *string { return &s.TresPerNode })
	for key, set := range map[string]jobSetter{
		"gres": perNode, "trespernode": perNode,
		"tresperjob":     devices(func(s *pb.JobSpec) *string { return &s.TresPerJob }),
		"trespersocket":  devices(func(s *pb.JobSpec) *string { return &s.TresPerSocket }),
		"trespertask":    devices(func(s *pb.JobSpec) *string { return &s.TresPerTask }),
		"mintmpdisknode": setTmpDisk, "mailtype": setMailType, "delayboot": setDelayBoot, "switches": setSwitches, "reboot": setReboot,
		"prefer": setPrefer, "endtime": setEnd, "resetaccruetime": resetAccrueTime, "wait-for-switch": setSwitchWait,
		"corespec": specialCores, "threadspec": specialCores,
	} {
		jobSetters[key] = set
	}
}

// setDevices takes "gpu:2", "gres/gpu:a100:1" or "" for none; unknown devices are refused when the job is admitted again.
func setDevices(e *jobEdit, field *string, key, value string) *pb.Problem {
	var list []string
	for _, word := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' }) {
		word = strings.TrimPrefix(word, "gres/")
		wanted, err := tres.ParseGres(word)
		if err != nil {
			return pb.NewProblem(pb.CodeInvalidGres, "%s=%s: %v", key, value, err)
		}
		for _, g := range wanted {
			list = append(list, "gres/"+g.String())
		}
	}
	*field = strings.Join(list, ",")
	return e.onlyPending(key)
}

func setTmpDisk(e *jobEdit, key, value string) *pb.Problem {
	mib, err := parseMiB(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s: %v", key, value, err)
	}
	e.job.Spec.TmpDiskMib = mib
	return e.onlyPending(key)
}

func setMailUser(e *jobEdit, _, value string) *pb.Problem {
	e.job.Spec.MailUser = cmp.Or(value, admit.MailUser(e.tx.Settings(), e.job.Spec))
	return nil
}

// setMailType takes the events as bits: scontrol has parsed the words.
func setMailType(e *jobEdit, key, value string) *pb.Problem {
	bits, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s is not a set of events", key, value)
	}
	e.job.Spec.MailType = uint32(bits)
	return nil
}

func setDelayBoot(e *jobEdit, key, value string) *pb.Problem {
	m, err := timespec.ParseMinutes(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTime, "%s=%s: %v", key, value, err)
	}
	e.job.Spec.DelayBootS = limitSeconds(m)
	return e.onlyPending(key)
}

// setSwitches takes COUNT[@TIME].
func setSwitches(e *jobEdit, key, value string) *pb.Problem {
	count, wait, timed := strings.Cut(value, "@")
	_, err := strconv.ParseUint(count, 10, 32)
	if err == nil && timed {
		_, err = timespec.ParseMinutes(wait)
	}
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s: write count[@time]", key, value)
	}
	if e.job.Spec.Switches = admit.Switches(e.tx.Settings(), value); strings.Trim(count, "0") == "" {
		e.job.Spec.Switches = "" // no limit any more
	}
	return e.onlyPending(key)
}

// setSwitchWait changes the time that the job waits for its count of switches.
func setSwitchWait(e *jobEdit, key, value string) *pb.Problem {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidSpec, "%s=%s is not a number of seconds", key, value)
	}
	if count, _, _ := strings.Cut(e.job.Spec.Switches, "@"); count != "" {
		e.job.Spec.Switches = admit.Switches(e.tx.Settings(), fmt.Sprintf("%s@%d:%02d", count, seconds/60, seconds%60))
	}
	return e.onlyPending(key)
}

// resetAccrueTime takes away the priority that the job has gained by age, and its place under MaxJobsAccrue.
func resetAccrueTime(e *jobEdit, key, _ string) *pb.Problem {
	e.job.AccrueNs = accrueFrom(e.tx, e.job, max(e.job.EligibleNs, e.tx.NowNS))
	return e.onlyPending(key)
}

func setReboot(e *jobEdit, key, value string) *pb.Problem {
	if p := setBool(&e.job.Spec.Reboot, key, value); p != nil {
		return p
	}
	return e.onlyPending(key)
}

func setPrefer(e *jobEdit, key, value string) *pb.Problem {
	e.job.Spec.Prefer = value
	return e.onlyPending(key)
}

// setEnd moves the end of a running job by changing its time limit (scontrol(1), EndTime).
func setEnd(e *jobEdit, key, value string) *pb.Problem {
	ns, p := moment(key, value)
	if p != nil {
		return p
	}
	if e.pending || e.job.StartNs == 0 || e.job.StopReason != "" {
		return pb.NewProblem(pb.CodeNotRunning, "job %s is %s", state.JobName(e.job), strings.ToLower(state.StateName(e.job)))
	}
	limit := (ns - limitFrom(e.job)) / 1e9
	switch {
	case ns < e.tx.NowNS || limit < 0 || limit >= int64(pb.Unlimited):
		return pb.NewProblem(pb.CodeInvalidTime, "the end has passed, or is too far away")
	case !e.caller.Operator && uint32(limit) > e.job.TimeLimitS:
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may extend the limit of a running job")
	}
	e.job.Spec.TimeLimitS, e.job.TimeLimitS = uint32(limit), uint32(limit)
	e.job.EndNs = ns
	return nil
}

// specialCores refuses CoreSpec, as Slurm does without AllowSpecResourcesUsage.
func specialCores(_ *jobEdit, key, value string) *pb.Problem {
	return pb.NewProblem(pb.CodeAccessDenied, "%s=%s: jobs may not ask for specialized cores", key, value)
}
