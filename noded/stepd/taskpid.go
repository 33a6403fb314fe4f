package stepd

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// SLURM_TASK_PID is part of a job's environment, which must exist before the process and its pid do. It starts as a row of zeros,
// in the first variable, and is overwritten in the memory of the process that execve has just stopped in.
const (
	taskPID       = "SLURM_TASK_PID="
	taskPIDDigits = 7 // the kernel's largest pid is 4194304
)

// withTaskPID adds the variable, unless it is set already or this processor's stack pointer is unknown.
func withTaskPID(env []string) []string {
	if !haveStackPointer || slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, taskPID) }) {
		return env
	}
	return append([]string{taskPID + strings.Repeat("0", taskPIDDigits)}, env...)
}

// fillTaskPID finds the first string of the environment on the stack that execve builds: argc, argv, NULL, envp. It changes
// nothing unless it finds the variable of withTaskPID.
func fillTaskPID(pid int) {
	var regs syscall.PtraceRegs
	if !haveStackPointer || syscall.PtraceGetRegs(pid, &regs) != nil {
		return
	}
	sp := stackPointer(&regs)
	argc, ok := peek(pid, sp)
	if !ok || argc > 1<<20 {
		return
	}
	first, ok := peek(pid, sp+8*uintptr(argc+2))
	if !ok {
		return
	}
	want := taskPID + strings.Repeat("0", taskPIDDigits)
	got := make([]byte, len(want))
	if n, err := syscall.PtracePeekData(pid, uintptr(first), got); err != nil || n != len(got) || string(got) != want {
		return
	}
	value := append([]byte(strconv.Itoa(pid)), bytes.Repeat([]byte{0}, taskPIDDigits)...)[:taskPIDDigits]
	_, _ = syscall.PtracePokeData(pid, uintptr(first)+uintptr(len(taskPID)), value)
}

func peek(pid int, at uintptr) (uint64, bool) {
	var b [8]byte
	n, err := syscall.PtracePeekData(pid, at, b[:])
	return binary.NativeEndian.Uint64(b[:]), err == nil && n == len(b)
}
