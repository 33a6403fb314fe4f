package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// jobValue checks the value of one key of scontrol update JobId= as Slurm's scontrol does before it asks the controller, and gives
// the value to send. refusal holds Slurm's lines, and what would help behind them; nil: fine.
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
	case "NumTasks", "CPUsPerTask", "MinCPUsNode", "ReqCores", "ReqSockets", "ReqThreads":
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
		if !number(value) {
			return "", []string{invalid}
		}
	case "Requeue", "OverSubscribe", "Shared", "Contiguous", "Reboot":
		if !yesOrNo(value) {
			return "", []string{invalid, "scontrol: error: say YES or NO"}
		}
	case "StartTime", "EligibleTime", "EndTime", "Deadline":
		if _, err := timespec.ParseMoment(value, now, time.Local, timespec.Future); err != nil {
			return "", []string{badMoment(value, err), "No changes specified", "scontrol: error: " + err.Error()}
		}
	case "TimeLimit", "TimeMin":
		if _, err := timespec.ParseMinutes(value); err != nil {
			return "", []string{"scontrol: error: Invalid " + key + " value", fmt.Sprintf("scontrol: error: %s=%s: %v", key, value, err)}
		}
	case "MailType":
		bits, ok := opt.MailEvents(value)
		if !ok {
			return "", []string{"Invalid MailType: " + value}
		}
		return strconv.FormatUint(uint64(bits), 10), nil
	}
	return value, nil
}

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
