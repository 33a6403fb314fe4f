package stepio

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ExitCode converts a wait status to an exit code.
func ExitCode(status uint32) int {
	const signalled = 128
	switch ws := syscall.WaitStatus(status); {
	case ws.Exited():
		return ws.ExitStatus()
	case ws.Signaled():
		return signalled + int(ws.Signal())
	}
	return 0
}

// SignalText is strsignal(3).
func SignalText(s syscall.Signal) string {
	switch s {
	case syscall.SIGHUP:
		return "Hangup"
	case syscall.SIGUSR1:
		return "User defined signal 1"
	case syscall.SIGUSR2:
		return "User defined signal 2"
	case syscall.SIGXCPU:
		return "CPU time limit exceeded"
	case syscall.SIGXFSZ:
		return "File size limit exceeded"
	case syscall.SIGTRAP:
		return "Trace/breakpoint trap"
	}
	text := s.String()
	return strings.ToUpper(text[:1]) + text[1:]
}

// Ranges formats ranks: "0-2,5".
func Ranges(ranks []uint32) string {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	var b strings.Builder
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(ranks[i])))
		if j > i {
			b.WriteString("-" + strconv.Itoa(int(ranks[j])))
		}
		i = j + 1
	}
	return b.String()
}
