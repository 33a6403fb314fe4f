//go:build !amd64 && !arm64

package stepd

import "syscall"

const haveStackPointer = false

func stackPointer(*syscall.PtraceRegs) uintptr { return 0 }
