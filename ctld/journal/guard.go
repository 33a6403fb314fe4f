package journal

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// fault is a panic, or a page that could not be read, turned into an error.
type fault struct{ reason any }

func (f *fault) Error() string { return fmt.Sprintf("it cannot be read (%v)", f.reason) }

// guard runs fn, in which bbolt reads mapped pages, and turns two failures into errors: bbolt panics when pages contradict each other, and
// a mapped page that the disk cannot deliver, or that was cut off, faults. It covers this goroutine only.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &fault{reason(r)}
		}
	}()
	return fn()
}

// reason removes a fault's address, which means nothing to an administrator.
func reason(r any) any {
	var e runtime.Error
	if err, ok := r.(error); ok && errors.As(err, &e) {
		if _, isFault := e.(interface{ Addr() uintptr }); isFault {
			return "a page of it is missing: truncated, or unreadable on disk"
		}
	}
	return r
}
