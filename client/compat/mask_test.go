package compat

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mask hides what must differ between two runs, keeping widths: columns are compared to the byte.
type mask struct {
	names   map[string]string // job id → the name that the script gave it
	unnamed map[string]string // the others of one answer, numbered in order of appearance
	dir     string            // where commands run
	data    string            // the folder of the configuration
	host    string
	cluster string // as long as that of the recording
}

// rules hide what differs whatever the script: moments, durations of seconds, process ids, ports, what the machine says of itself.
var rules = []struct {
	re *regexp.Regexp
	by string
}{
	// Moments, of this century, in the default form.
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\b`), "YYYY-MM-DDThh:mm:ss"},
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d 20\d\d`),
		"Day Mon dd hh:mm:ss YYYY"},
	// How long something has run: scripts are done within a minute or so.
	{regexp.MustCompile(`\b(RunTime|SuspendTime)=00:0\d:\d\d`), "$1=00:00:00"},
	{regexp.MustCompile(`(^|[\s|])0:[0-5]\d\b`), "${1}0:00"},
	{regexp.MustCompile(`\b00:00:[0-5]\d\b`), "00:00:00"},
	{regexp.MustCompile(`\b29:[0-5]\d\b`), "29:59"},
	// Priority is age and share; what is compared is whether it is 0, 1 or the administrator's.
	{regexp.MustCompile(`\bPriority=[1-9]\d*`), "Priority=P"},
	{regexp.MustCompile(`\bAllocNode:Sid=\S+`), "AllocNode:Sid=host:sid"},
	{regexp.MustCompile(`\bSrunHost:Pid=[^(:\s]+:\d+`), "SrunHost:Pid=host:pid"},
	{regexp.MustCompile(`\bPort=\d+`), "Port=port"},
	// Ours is longer (configure): a machine that has much else to do is no difference.
	{regexp.MustCompile(`\bMessageTimeout( +)= 300 sec`), "MessageTimeout${1}= 10 sec"},
	{regexp.MustCompile(`\bCPULoad=\S+`), "CPULoad=load"},
	{regexp.MustCompile(`\bFreeMem=\S+`), "FreeMem=free"},
	{regexp.MustCompile(`\bOS=Linux [^\n]*`), "OS=Linux"},
	{regexp.MustCompile(`\bVersion=\d\S*`), "Version=version"},
	{regexp.MustCompile(`\bslurm 2\d\.\d\d\.\d+(-\S+)?`), "slurm version"},
	// Whether what was there before has been cleaned up when the next step or allocation is asked for, and so on which node it comes.
	{regexp.MustCompile(`(?m)^srun: (Job \S+ step creation temporarily disabled, retrying.*|Step created for \S+( \S+)?)\n`), ""},
	{regexp.MustCompile(`(?m)^(srun|salloc): job \S+ (queued and waiting for resources|has been allocated resources)\n`), ""},
	{regexp.MustCompile(`(?m)^(srun: error: )[ng]\d(: tasks? )`), "${1}node$2"},
	{regexp.MustCompile(`\bslurmstepd-[ng]\d:`), "slurmstepd:"},
	{regexp.MustCompile(`/tmp/tmp\.\w{10}`), "/tmp/tmp.XXXXXXXXXX"},
}

// jobID finds ids below 140000; what is the end of a word, or the beginning of a longer number, is none.
var jobID = regexp.MustCompile(`(^|[^0-9A-Za-z])(1[0-3]\d{4})($|[^0-9])`)

// Columns of what a process used, and their lines: how many pages of a shell lie in memory, or come from the disk, is the machine's
// affair. Whether there is a figure, and how wide its column is, is compared.
var (
	measured = regexp.MustCompile(`(?i)\bsacct .*-o (ave|max)(cpu|rss|vmsize|pages|diskread|diskwrite)\b`)
	aFigure  = regexp.MustCompile(`(?m)^ *[0-9.:]+[KMG]? $`)
)

// figures hides what was measured, keeping the width of its column.
func figures(text string) string {
	return aFigure.ReplaceAllStringFunc(text, func(line string) string { return fmt.Sprintf("%*s ", len(line)-1, "used") })
}

// answer masks one answer. Ids that the script has not named are numbered anew in each: how many jobs others have submitted is
// nothing to compare.
func (m *mask) answer(command, stdout, stderr string) (string, string) {
	m.unnamed = map[string]string{}
	if measured.MatchString(command) {
		stdout = figures(stdout)
	}
	return m.apply(stdout), m.apply(stderr)
}

func (m *mask) apply(text string) string {
	text = strings.ReplaceAll(text, m.dir, dirMark)
	text = strings.ReplaceAll(text, m.data, "@DATA@")
	text = m.hideHost(text)
	text = regexp.MustCompile(`\b`+regexp.QuoteMeta(m.cluster)+`\b`).ReplaceAllString(text, recordedName)
	for _, r := range rules {
		text = r.re.ReplaceAllString(text, r.by)
	}
	for { // ids that share a separator are found one after the other
		at := jobID.FindStringSubmatchIndex(text)
		if at == nil {
			return text
		}
		text = text[:at[4]] + m.id(text[at[4]:at[5]]) + text[at[5]:]
	}
}

// tasksEnd finds what srun says of the ends of tasks. Those of one moment share a line, so the load of the machine decides which do.
var tasksEnd = regexp.MustCompile(`(?m)(^srun: error: \S+: tasks? [0-9,-]+: .*\n)+`)

// eachTask gives each task whose end srun tells a line of its own.
func eachTask(text string) string {
	return tasksEnd.ReplaceAllStringFunc(text, func(told string) string {
		var lines []string
		for line := range strings.Lines(told) {
			f := strings.SplitN(line, ": ", 5)
			_, tasks, _ := strings.Cut(f[3], " ")
			for part := range strings.SplitSeq(tasks, ",") {
				first, last, several := strings.Cut(part, "-")
				if !several {
					last = first
				}
				from, _ := strconv.Atoi(first)
				to, _ := strconv.Atoi(last)
				for task := from; task <= to; task++ {
					lines = append(lines, fmt.Sprintf("%s: task %d: %s", f[2], task, f[4]))
				}
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "")
	})
}

// hideHost hides the machine's name, also in the middle of a file's, and keeps the width of its column.
func (m *mask) hideHost(text string) string {
	re := regexp.MustCompile(`(\b|_)` + regexp.QuoteMeta(m.host) + `(\b|_)( *)`)
	return re.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.TrimRight(found, " ")
		blanks := len(found) - len(name)
		if blanks > 1 {
			blanks = max(1, blanks+len(m.host)-len(hostMark))
		}
		return strings.Replace(name, m.host, hostMark, 1) + strings.Repeat(" ", blanks)
	})
}

// hostMark stands for the machine's name.
const hostMark = "@HOST@"

// id names a job's id in six characters, as many as it has.
func (m *mask) id(id string) string {
	name, ok := m.names[id]
	if !ok {
		name, ok = m.unnamed[id]
	}
	if !ok {
		name = fmt.Sprint(len(m.unnamed) + 1)
		m.unnamed[id] = name
	}
	return fmt.Sprintf("@%s%s", name, strings.Repeat("@", max(0, 5-len(name))))
}

// TestEachTask: the same ends are the same answer, in however many lines srun tells them.
func TestEachTask(t *testing.T) {
	together := "x\nsrun: error: node: tasks 0-2: Killed\nsrun: error: node: task 3: Killed\ny\n"
	apart := "x\nsrun: error: node: task 0: Killed\nsrun: error: node: task 3: Killed\nsrun: error: node: tasks 1,2: Killed\ny\n"
	if a, b := eachTask(together), eachTask(apart); a != b || strings.Count(a, "\n") != 6 {
		t.Errorf("%q and %q", a, b)
	}
	for _, other := range []string{strings.Replace(apart, "1,2", "1", 1), strings.Replace(apart, "3: K", "3: Not k", 1)} {
		if eachTask(other) == eachTask(together) {
			t.Errorf("%q is taken for the same", other)
		}
	}
}
