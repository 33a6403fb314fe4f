package stepd

import "syscall"

const haveStackPointer = true

func stackPointer(r *syscall.PtraceRegs) uintptr { return uintptr(r.Sp) }
