package joboptions

import (
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
)

// signals are the names that Slurm knows, with their Linux numbers.
var signals = [...]struct {
	name   string
	number uint32
}{{"HUP", 1}, {"INT", 2}, {"QUIT", 3}, {"ILL", 4}, {"TRAP", 5}, {"ABRT", 6}, {"BUS", 7}, {"FPE", 8}, {"KILL", 9}, {"USR1", 10},
	{"SEGV", 11},
	{"USR2", 12}, {"PIPE", 13}, {"ALRM", 14}, {"TERM", 15}, {"STKFLT", 16}, {"CHLD", 17}, {"CONT", 18}, {"STOP", 19}, {"TSTP", 20},
	{"TTIN", 21}, {"TTOU", 22}, {"URG", 23}, {"XCPU", 24}, {"XFSZ", 25}, {"VTALRM", 26}, {"PROF", 27}, {"WINCH", 28}, {"IO", 29},
	{"PWR", 30}, {"SYS", 31}}

// Signal reads a signal by number or name, with or without SIG, in any case.
func Signal(s string) (uint32, bool) {
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && allDigits(s) {
		return uint32(n), n >= 1 && n <= 64
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for _, k := range signals {
		if k.name == name {
			return k.number, true
		}
	}
	return 0, false
}

// setSignal reads [{R|B}:]sig[@seconds]; the default is 60 seconds (sbatch(1), --signal).
func setSignal(r *Request, value string, _ bool) error {
	const expected = "expected [R|B:]signal[@seconds], as in USR1, B:TERM@120; seconds from 0 to 65535"
	flags, rest, flagged := strings.Cut(value, ":")
	if !flagged {
		flags, rest = "", value
	}
	batch, resv := false, false
	for _, c := range strings.ToUpper(flags) {
		switch c {
		case 'B':
			batch = true
		case 'R':
			resv = true
		default:
			return invalid("signal", value, expected)
		}
	}
	name, at, timed := strings.Cut(rest, "@")
	number, ok := Signal(name)
	seconds := uint64(60)
	var err error
	if timed {
		seconds, err = strconv.ParseUint(at, 10, 16)
	}
	if !ok || err != nil || (flagged && flags == "") {
		return invalid("signal", value, expected)
	}
	r.Spec.WarnSignal, r.Spec.WarnSeconds, r.Spec.WarnBatch, r.Spec.WarnResv = number, uint32(seconds), batch, resv
	return nil
}

var mailEvents = [...]struct {
	name string
	bits uint32
}{{"NONE", 0}, {"BEGIN", msg.MailBegin}, {"END", msg.MailEnd}, {"FAIL", msg.MailFail}, {"REQUEUE", msg.MailRequeue},
	{"INVALID_DEPEND", msg.MailInvalidDepend}, {"STAGE_OUT", msg.MailStageOut}, {"TIME_LIMIT", msg.MailTime100},
	{"TIME_LIMIT_90", msg.MailTime90},
	{"TIME_LIMIT_80", msg.MailTime80}, {"TIME_LIMIT_50", msg.MailTime50}, {"ARRAY_TASKS", msg.MailArrayTasks},
	{"ALL", msg.MailBegin | msg.MailEnd | msg.MailFail | msg.MailRequeue | msg.MailInvalidDepend | msg.MailStageOut}}

func setMailType(r *Request, value string, _ bool) error {
	bits, none := uint32(0), false
	refused := invalid("mail-type", value,
		"expected NONE, BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, STAGE_OUT, TIME_LIMIT[_90|_80|_50], ARRAY_TASKS or ALL")
	if strings.Trim(value, ",") == "" {
		return refused
	}
next:
	for word := range strings.SplitSeq(value, ",") {
		if word == "" { // as in Slurm: "BEGIN,,END"
			continue
		}
		for _, e := range mailEvents {
			if strings.EqualFold(e.name, word) {
				bits, none = bits|e.bits, none || e.bits == 0
				continue next
			}
		}
		return refused
	}
	if none { // at any position
		bits = 0
	}
	r.Spec.MailType = bits
	return nil
}
