package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxScript bounds the script of a simulated machine, in bytes.
const maxScript = 1 << 16

// scriptFile is the file "script" in the directory of a simulated machine, as last read.
type scriptFile struct {
	at   time.Time
	size int64
	last map[int]ScriptLine
}

// ScriptLine is a script's line about one GPU.
type ScriptLine struct {
	State FakeState
	XID   uint64
	Nth   int // xid=79@2: the second of its kind, distinct from the first
}

// ParseScript parses the states of simulated GPUs, one line for each, by index; a GPU without a line is idle and healthy:
//
//	0 util=90 mem=20000 temp=70 power=300000
//	1 xid=79            reports that error, once; xid=79@2 once more
//	2 lost=yes ecc=1 remap=failed pids=4242,777 na=util,energy busy=yes
//
// mem is in MiB, power in mW. "#" begins a comment.
func ParseScript(text string, gpus int) (map[int]ScriptLine, error) {
	out := map[int]ScriptLine{}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		index, err := strconv.Atoi(words[0])
		if err != nil || index < 0 || index >= gpus {
			return nil, fmt.Errorf("cannot read line %d of the script: %.20q is not the index of a GPU", n+1, words[0])
		}
		var l ScriptLine
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			if err := l.set(key, value); err != nil {
				return nil, fmt.Errorf("cannot read line %d of the script: %.40q: %w", n+1, w, err)
			}
		}
		out[index] = l
	}
	return out, nil
}

func (l *ScriptLine) set(key, value string) (err error) {
	s := &l.State
	number := func(to *int64) {
		if *to, err = strconv.ParseInt(value, 10, 32); err == nil && *to < 0 {
			err = fmt.Errorf("it is negative")
		}
	}
	switch key {
	case "util":
		number(&s.Util)
	case "mem":
		number(&s.MemMiB)
	case "temp":
		number(&s.TempC)
	case "power":
		number(&s.PowerMW)
	case "ecc":
		number(&s.ECC)
	case "remap":
		s.Remap = value
	case "lost":
		s.Lost = value == "yes"
	case "busy":
		s.Busy = value == "yes"
	case "na":
		s.NA = strings.Split(value, ",")
	case "pids":
		for _, p := range strings.Split(value, ",") {
			pid, perr := strconv.Atoi(p)
			if perr != nil || pid < 1 {
				return fmt.Errorf("%.20q is not a process", p)
			}
			s.PIDs = append(s.PIDs, pid)
		}
	case "xid":
		code, nth, _ := strings.Cut(value, "@")
		l.XID, err = strconv.ParseUint(code, 10, 16)
		if nth != "" && err == nil {
			l.Nth, err = strconv.Atoi(nth)
		}
	default:
		err = fmt.Errorf("known fields are util, mem, temp, power, ecc, remap, lost, busy, na, pids, xid")
	}
	return err
}

// readScript applies the script if it has changed. An invalid one changes nothing; the error is written beside it.
func (f *Fake) readScript() {
	path := filepath.Join(f.dir, "script")
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Equal(f.script.at) && info.Size() == f.script.size || info.Size() > maxScript {
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return
	}
	was := f.script.last
	lines, err := ParseScript(string(b), len(f.gpus))
	f.script.at, f.script.size = info.ModTime(), info.Size()
	if err != nil {
		_ = os.WriteFile(path+".error", []byte(err.Error()+"\n"), 0o644)
		return
	}
	_ = os.Remove(path + ".error")
	f.script.last = lines
	for i, g := range f.gpus {
		l, said := lines[i]
		if _, before := was[i]; !said && !before {
			continue // set by a test
		}
		g.account()
		g.state = l.State
		if l.XID != 0 && (was[i].XID != l.XID || was[i].Nth != l.Nth) {
			f.xid(i, l.XID)
		}
	}
}
