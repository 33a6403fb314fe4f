package terminal

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Lines writes what a command itself says while its terminal passes everything on as it is: with Raw set each line ends with a carriage
// return, too.
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
