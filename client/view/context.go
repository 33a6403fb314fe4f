// Package view is shared by the commands that show records: queries to the controller, selection, tables and documents.
package view

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Context returns the context that formats need; nowNS is the controller's clock, 0 if it is unknown.
func Context(e *command.Env, nowNS int64) *format.Context {
	c := &format.Context{Now: e.Now(), TimeFormat: e.Getenv("SLURM_TIME_FORMAT"), BitstrLen: format.DefaultBitstrLen,
		Cluster: e.ClusterName()}
	setClock(c, nowNS)
	if n, err := strconv.Atoi(e.Getenv("SLURM_BITSTR_LEN")); err == nil && n >= 0 {
		c.BitstrLen = n
	}
	names := map[uint32]string{}
	c.UserName = func(uid uint32) string {
		name, ok := names[uid]
		if !ok {
			if a, found := passwd.User(strconv.FormatUint(uint64(uid), 10)); found && a.UID == uid {
				name = a.Name
			}
			names[uid] = name
		}
		return name
	}
	return c
}

// LoadFailed prints Slurm's message for a failed query, and the diagnosis after it.
func LoadFailed(e *command.Env, call string, err error) error {
	text, more := command.Phrase(err)
	fmt.Fprintf(e.Stderr, "%s: %s\n", call, format.Escape(text))
	if more != "" {
		e.Errorf("%s", format.Escape(more))
	}
	return command.ExitCode(e.ErrorExit())
}

// Repeat runs a view once, or every everyS seconds (-i) with a blank line between, until it is killed or its reader goes away. A
// failure of the first run ends it; later the controller may come back.
func Repeat(e *command.Env, everyS int, once func(ctx context.Context) int) int {
	if everyS == 0 {
		return once(context.Background())
	}
	out := &tracked{Writer: e.Stdout}
	e.Stdout = out
	for first := true; ; first = false {
		code := once(context.Background())
		if code != 0 && first {
			return code
		}
		if _, err := io.WriteString(out, "\n"); err != nil || out.failed {
			return 1
		}
		e.Sleep(time.Duration(everyS) * time.Second)
	}
}

// tracked remembers that a write failed.
type tracked struct {
	io.Writer
	failed bool
}

func (t *tracked) Write(b []byte) (int, error) {
	n, err := t.Writer.Write(b)
	t.failed = t.failed || err != nil
	return n, err
}
