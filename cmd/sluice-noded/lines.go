package main

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Limits on the output of noded-link to the node daemon's log, so that it cannot fill the disk.
const (
	maxLine        = 16 << 10
	linesPerSecond = 500
	linesAtOnce    = 5000
	bytesPerSecond = 128 << 10
	bytesAtOnce    = 2 << 20
)

// lines passes on complete lines, at a limited rate.
type lines struct {
	to   func(line []byte) error
	rest []byte
	may  *rate.Limiter // lines
	size *rate.Limiter // bytes
	lost int
}

func newLines(to func(line []byte) error) *lines {
	return &lines{to: to, may: rate.NewLimiter(linesPerSecond, linesAtOnce),
		size: rate.NewLimiter(bytesPerSecond, bytesAtOnce)}
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, after, whole := bytes.Cut(p, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), maxLine-len(l.rest))]...)
		p = after
		if !whole {
			break
		}
		l.pass()
	}
	return n, nil // a failing log must not end noded-link
}

func (l *lines) pass() {
	if now := time.Now(); !l.may.AllowN(now, 1) || !l.size.AllowN(now, len(l.rest)+1) {
		l.lost++
		l.rest = l.rest[:0]
		return
	}
	if l.lost > 0 {
		_ = l.to(fmt.Appendf(nil, "level=WARN msg=\"log lines of noded-link were dropped\" lines=%d\n", l.lost))
		l.lost = 0
	}
	_ = l.to(append(l.rest, '\n'))
	l.rest = l.rest[:0]
}
