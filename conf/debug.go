package conf

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

var debugLevels = []string{"quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}

// DebugLevel reads a level of SlurmctldDebug and SlurmdDebug (slurm.conf(5)): its name, in any case, or its number. It gives the name.
func DebugLevel(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && n < uint64(len(debugLevels)) { // without a sign
		return debugLevels[n], nil
	}
	return oneOf(s, debugLevels...)
}

// SlogLevel is from which level on a daemon logs whose debug level has this name.
func SlogLevel(name string) slog.Level {
	switch name {
	case "quiet", "fatal":
		return slog.LevelError + 4 // above all that is logged
	case "error":
		return slog.LevelError
	case "", "info", "verbose":
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// SyslogLevel is from which level on a daemon logs to syslog whose SlurmctldSyslogDebug or SlurmdSyslogDebug has this name. Where
// slurm.conf does not say, a daemon of Slurm in the foreground, as ours always are, does not.
func SyslogLevel(name string) slog.Level { return SlogLevel(cmp.Or(name, "quiet")) }

// debugFlags are the words of DebugFlags (slurm.conf(5)).
var debugFlags = strings.Fields(`Accrue Agent AuditRPCs AuditTLS Backfill BackfillMap BurstBuffer Cgroup ConMgr CPU_Bind CpuFrequency
	Data DBD_Agent Dependency Elasticsearch Energy Federation FrontEnd Gang GLOB_SILENCE Gres Hetjob JobAccountGather JobComp JobContainer
	Kafka License MPI Network NetworkRaw NodeFeatures NO_CONF_HASH Power Priority Profile Protocol Reservation Route Script SelectType
	Steps Switch TLS TraceJobs Triggers WorkQueue`)

// DebugFlag reads a word of DebugFlags, in any case, and gives it as slurm.conf(5) spells it.
func DebugFlag(s string) (string, bool) {
	i := slices.IndexFunc(debugFlags, func(f string) bool { return strings.EqualFold(f, s) })
	if i < 0 {
		return "", false
	}
	return debugFlags[i], true
}

// LogTimeFormats are the words of LogTimeFormat (slurm.conf(5)), of which one is chosen; format_stderr may stand beside it, or alone.
var LogTimeFormats = []string{"iso8601", "iso8601_ms", "rfc5424", "rfc5424_ms", "clock", "short", "thread_id", formatStderr}

const formatStderr = "format_stderr"

// setLogTimeFormat reads words in any case, and gives them in small letters, without blanks. Of several forms the first one counts, and
// words that are none are left out: checkWords and checkLogTime tell of them.
func setLogTimeFormat(c *Config, v string) error {
	form, rest := splitLogTime(v)
	c.LogTimeFormat = strings.Join(append(form[:min(len(form), 1)], rest...), ",")
	return nil
}

// splitLogTime gives the forms that a value of LogTimeFormat asks for, and format_stderr if it is there.
func splitLogTime(v string) (forms, stderr []string) {
	for word := range strings.SplitSeq(v, ",") {
		word, err := oneOf(strings.TrimSpace(word), LogTimeFormats...)
		switch {
		case err != nil:
		case word != formatStderr:
			forms = append(forms, word)
		case len(stderr) == 0:
			stderr = append(stderr, word)
		}
	}
	return forms, stderr
}

// checkLogTime tells of forms of the time that exclude each other.
func (l *loader) checkLogTime() {
	const lower = "logtimeformat"
	if forms, _ := splitLogTime(l.c.raw[lower]); len(slices.Compact(forms)) > 1 {
		l.warn(l.c.setAt[lower], "keep one of them", "LogTimeFormat: %s exclude each other; %s is used", strings.Join(forms, " and "),
			forms[0])
	}
}
