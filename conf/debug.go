package conf

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

var debugLevels = []string{"quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}

// DebugLevel reads a level of SlurmctldDebug or SlurmdDebug (slurm.conf(5)), a name in any case or a number, and returns its name.
func DebugLevel(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && n < uint64(len(debugLevels)) { // ParseUint rejects signs
		return debugLevels[n], nil
	}
	return oneOf(s, debugLevels...)
}

// SlogLevel returns the lowest level that a daemon with this debug level logs.
func SlogLevel(name string) slog.Level {
	switch name {
	case "quiet", "fatal":
		return slog.LevelError + 4 // above every level in use
	case "error":
		return slog.LevelError
	case "", "info", "verbose":
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// SyslogLevel returns the lowest level that a daemon sends to syslog, given SlurmctldSyslogDebug or SlurmdSyslogDebug. Without the
// key nothing is sent, as for a Slurm daemon in the foreground; Sluice's daemons always run in the foreground.
func SyslogLevel(name string) slog.Level { return SlogLevel(cmp.Or(name, "quiet")) }

// debugFlags are the words of DebugFlags (slurm.conf(5)).
var debugFlags = strings.Fields(`Accrue Agent AuditRPCs AuditTLS Backfill BackfillMap BurstBuffer Cgroup ConMgr CPU_Bind CpuFrequency
	Data DBD_Agent Dependency Elasticsearch Energy Federation FrontEnd Gang GLOB_SILENCE Gres Hetjob JobAccountGather JobComp JobContainer
	Kafka License MPI Network NetworkRaw NodeFeatures NO_CONF_HASH Power Priority Profile Protocol Reservation Route Script SelectType
	Steps Switch TLS TraceJobs Triggers WorkQueue`)

// DebugFlag reads a word of DebugFlags, in any case, and returns it in the spelling of slurm.conf(5).
func DebugFlag(s string) (string, bool) {
	i := slices.IndexFunc(debugFlags, func(f string) bool { return strings.EqualFold(f, s) })
	if i < 0 {
		return "", false
	}
	return debugFlags[i], true
}

// LogTimeFormats are the words of LogTimeFormat (slurm.conf(5)). One may be chosen; format_stderr may be added to it or stand
// alone.
var LogTimeFormats = []string{"iso8601", "iso8601_ms", "rfc5424", "rfc5424_ms", "clock", "short", "thread_id", formatStderr}

const formatStderr = "format_stderr"

// setLogTimeFormat reads words in any case and stores them in lower case, without blanks. If there are several formats the first
// one counts. Unknown words are left out: checkWords and checkLogTime report them.
func setLogTimeFormat(c *Config, v string) error {
	form, rest := splitLogTime(v)
	c.LogTimeFormat = strings.Join(append(form[:min(len(form), 1)], rest...), ",")
	return nil
}

// splitLogTime returns the formats in a value of LogTimeFormat, and format_stderr if it is present.
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

// checkLogTime warns of time formats that exclude each other.
func (l *loader) checkLogTime() {
	const lower = "logtimeformat"
	if forms, _ := splitLogTime(l.c.raw[lower]); len(slices.Compact(forms)) > 1 {
		l.warn(l.c.setAt[lower], "keep one of them", "LogTimeFormat: %s are mutually exclusive; %s is used", strings.Join(forms, " and "),
			forms[0])
	}
}
