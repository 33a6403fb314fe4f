package command

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// output is standard output of a process. The first failed write, by any code, is reported on standard error: a full disk must not
// look like an empty answer. A reader that went away is not reported.
type output struct {
	*os.File
	name string // the command's
	told bool
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if err != nil && !o.told && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.EBADF) {
		o.told = true
		fmt.Fprintf(os.Stderr, "%s: error: cannot write the output: %v\n", o.name, errors.Unwrap(err))
	}
	return n, err
}

func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }
