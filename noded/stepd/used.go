package stepd

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/usage"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// ended waits for a child that has ended without reaping it, so that /proc still shows its I/O. It returns 0 if there is none
// now, or none at all: wait4 tells which.
func ended(flags int) int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|flags, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0
		}
		return int(pidOf(&info))
	}
}

// pidOf returns si_pid, which follows signal, errno and code, and on 64-bit machines padding.
func pidOf(info *unix.Siginfo) int32 {
	offset := unsafe.Offsetof(info.Code) + unsafe.Sizeof(info.Code)
	offset = (offset + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return *(*int32)(unsafe.Add(unsafe.Pointer(info), offset))
}

// waitNext reaps the next child that ends, and adds its I/O to sum.
func waitNext(sum *reaped, ws *syscall.WaitStatus, flags int, ru *syscall.Rusage) (int, error) {
	pid := ended(flags)
	if pid <= 0 {
		return wait4(-1, ws, flags, ru)
	}
	r, w := usage.IO(pid)
	sum.readBytes, sum.writeBytes = sum.readBytes+r, sum.writeBytes+w
	return wait4(pid, ws, flags, ru)
}

// used returns the step's use of resources, for its exit record.
func (r *run) used() *pb.StepUsage {
	return &pb.StepUsage{CpuUsecUser: r.use.userUsec, CpuUsecSystem: r.use.systemUsec, MaxRssKib: r.use.maxRSSKiB, MaxVmKib: r.maxVM,
		ReadBytes: r.use.readBytes, WriteBytes: r.use.writeBytes, PageFaults: r.use.faults}
}
