package sandbox

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// progress shows what the command waits for: on a terminal, one changing line; otherwise nothing, because the result is printed at
// the end.
type progress struct {
	out   io.Writer
	tty   bool
	shown string
}

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	if !ok {
		return &progress{}
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &progress{out: out, tty: err == nil}
}

func (p *progress) say(text string) {
	if !p.tty || text == p.shown {
		return
	}
	if r := []rune(text); len(r) > 100 {
		text = string(r[:100]) + "…"
	}
	p.shown = text
	fmt.Fprintf(p.out, "\r\x1b[K%s …", text)
}

// end clears the line.
func (p *progress) end() {
	if p.tty && p.shown != "" {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// word quotes a path for a shell if necessary.
func word(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:@%,=", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
