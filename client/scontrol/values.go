package scontrol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// jobValue checks the value of a key of scontrol update JobId= as Slurm's scontrol does before it calls the controller, and returns
// the value to send. now is in the user's time zone. refusal has Slurm's lines and the remedy; nil if the value is valid.
func jobValue(now time.Time, key, value string) (send string, refusal []string) {
	invalid := "scontrol: error: Invalid " + key + " value: " + value
	switch key {
	case "NumCPUs":
		least, most, ranged := strings.Cut(value, "-")
		if !number(least) || ranged && !number(most) {
			return "", []string{fmt.Sprintf("scontrol: error: Invalid numeric value %q for NumCPUs.", value), invalid}
		}
		if least == "0" {
			return "", []string{invalid}
		}
	case "NumTasks", "ReqProcs", "CPUsPerTask", "TasksPerNode", "MinCPUsNode", "ReqCores", "ReqSockets", "ReqThreads", "CoreSpec",
		"ThreadSpec", "wait-for-switch":
		if !number(value) {
			return "", []string{invalid}
		}
	case "NumNodes", "ReqNodes":
		least, most, ranged := strings.Cut(value, "-")
		if !number(least) || ranged && !number(most) {
			return "", []string{fmt.Sprintf("scontrol: error: Invalid numeric value %q for requested node count.", value)}
		}
	case "MinMemoryNode", "MinMemoryCPU", "MinTmpDiskNode":
		if _, err := tres.ParseMiB(value); err != nil {
			return "", []string{invalid, "scontrol: error: " + err.Error()}
		}
	case "Priority":
		if !number(value) || value == "4294967295" {
			return "", []string{invalid}
		}
	case "ArrayTaskThrottle":
		if !number(value) {
			return "", []string{"scontrol: error: Invalid ArrayTaskThrottle value", "scontrol: error: " + key + "=" + value +
				" is not a number"}
		}
	case "Nice":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && (n > maxNice || n < -maxNice) {
			return "", []string{fmt.Sprintf("scontrol: error: Nice value out of range (+/- %d). Value ignored", maxNice)}
		}
	case "Requeue":
		if value != "0" && value != "1" {
			return "", []string{invalid, "scontrol: error: use 1 or 0"}
		}
	case "OverSubscribe", "Shared", "Contiguous":
		if !yesOrNo(value) {
			return "", []string{invalid, "scontrol: error: use YES or NO"}
		}
	case "Reboot":
		if !yesOrNo(value) {
			return "", []string{"scontrol: error: Invalid reboot value: " + value, "scontrol: error: use YES or NO"}
		}
	case "DelayBoot":
		if _, err := timespec.ParseMinutes(value); err != nil {
			return "", []string{"scontrol: error: Invalid DelayBoot value", fmt.Sprintf("scontrol: error: %s=%s: %v", key, value, err)}
		}
	case "StartTime", "EligibleTime", "EndTime", "Deadline":
		if value == "" {
			return "", []string{"No changes specified", "scontrol: error: " + key + "= has no value"}
		}
		at, err := timespec.ParseMoment(value, now, now.Location(), timespec.Future)
		if err != nil {
			return "", []string{badMoment(value, err), "No changes specified", "scontrol: error: " + err.Error()}
		}
		return timespec.FormatUnix(at), nil
	case "TimeLimit", "TimeMin":
		if _, err := timespec.ParseMinutes(value); err != nil {
			return "", []string{"scontrol: error: Invalid " + key + " value", fmt.Sprintf("scontrol: error: %s=%s: %v", key, value, err)}
		}
	case "MailType":
		bits, ok := joboptions.MailEvents(value)
		if !ok {
			return "", []string{"Invalid MailType: " + value}
		}
		return strconv.FormatUint(uint64(bits), 10), nil
	}
	return value, nil
}

// partitionValue checks the value of a key of scontrol update PartitionName= as Slurm's scontrol does, and returns the value to
// send, or Slurm's lines and the remedy.
func partitionValue(key, word, value string) (send string, refusal []string, hint string) {
	invalid := "scontrol: error: Invalid " + key + " value: " + value
	switch key {
	case "State":
		for _, state := range []string{"INACTIVE", "DOWN", "UP", "DRAIN"} {
			if value != "" && len(value) <= len(state) && strings.EqualFold(state[:len(value)], value) {
				return state, nil, ""
			}
		}
		return "", []string{"scontrol: error: Invalid input: " + word,
			"scontrol: error: Acceptable State values are UP, DOWN, DRAIN and INACTIVE"}, ""
	case "Default", "DisableRootJobs", "ExclusiveUser", "Hidden", "LLN", "ReqResv", "RootOnly":
		if v := strings.ToLower(value); v == "" || !strings.HasPrefix("yes", v) && !strings.HasPrefix("no", v) {
			return "", []string{"scontrol: error: Invalid input: " + word, "scontrol: error: Acceptable " + key +
				" values are YES and NO"}, ""
		}
		return strings.ToLower(value[:1]), nil, ""
	case "MaxTime", "DefaultTime":
		if _, err := timespec.ParseMinutes(value); err != nil {
			return "", []string{"scontrol: error: Invalid input " + word}, fmt.Sprint(err)
		}
	case "OverTimeLimit", "PriorityTier", "PriorityJobFactor", "Priority":
		if n, err := strconv.ParseUint(value, 10, 64); !unlimited(value) && (err != nil || n > maxShort) {
			return "", []string{invalid}, ""
		}
	case "DefMemPerCPU", "DefMemPerNode", "MaxMemPerCPU", "MaxMemPerNode", "GraceTime":
		if !number(value) {
			return "", []string{invalid}, ""
		}
	case "MaxCPUsPerNode":
		if !number(value) && !unlimited(value) {
			return "", []string{invalid}, ""
		}
	case "MaxNodes":
		if !number(value) && !unlimited(value) {
			return "", []string{fmt.Sprintf("scontrol: error: Invalid numeric value %q for MaxNodes.", value)}, ""
		}
	case "OverSubscribe", "Shared":
		mode, _, _ := strings.Cut(strings.ToUpper(value), ":")
		if mode != "NO" && mode != "EXCLUSIVE" && mode != "YES" && mode != "FORCE" {
			return "", []string{"scontrol: error: Invalid input: " + word, "scontrol: error: Acceptable " + key +
				" values are NO, EXCLUSIVE, YES:#, and FORCE:#"}, ""
		}
	case "PreemptMode":
		for _, mode := range strings.Split(strings.ToUpper(value), ",") {
			if !slices.Contains([]string{"OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG"}, mode) {
				return "", []string{"scontrol: error: Invalid input: " + word}, "modes are OFF, CANCEL, REQUEUE, SUSPEND and GANG"
			}
		}
	}
	return value, nil, ""
}

// maxShort is the largest tier, factor and number of minutes of overtime (scontrol(1)).
const maxShort = 65533

func unlimited(value string) bool {
	return strings.EqualFold(value, "unlimited") || strings.EqualFold(value, "infinite")
}

// maxNice is the largest adjustment of a priority (scontrol(1), Nice).
const maxNice = 2147483645

func number(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

func yesOrNo(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "0", "1":
		return true
	}
	return false
}
