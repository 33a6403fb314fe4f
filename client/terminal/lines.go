package terminal

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Lines writes a command's own messages while its terminal is in raw mode: with Raw set, each line also ends with a carriage
// return.
type Lines struct {
	W   io.Writer
	Raw atomic.Bool
}

func (l *Lines) Write(b []byte) (int, error) {
	text := b
	if l.Raw.Load() {
		text = bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
	}
	if _, err := l.W.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}
