package cgroup

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The kernel runs a device program (BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15) at each open(2) and mknod(2) of a device by a
// process in its group or below. It returns 1 or 0 (EPERM). It is attached, not linked: a link ends with its holder, and then
// denied devices open again.

// instruction is a kernel instruction in its own layout (struct bpf_insn).
type instruction struct {
	code   uint8
	dst    uint8 // registers
	src    uint8
	offset int16
	imm    int32
}

const (
	loadWord   = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	and        = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	move       = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	jumpUnless = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	exit       = unix.BPF_JMP | unix.BPF_EXIT
)

// Registers, and the fields they are loaded from (struct bpf_cgroup_dev_ctx).
const (
	answer  = iota // R0
	context        // R1
	kind           // R2: low half of the first word
	major          // R3
	minor          // R4
)

// program compiles Allowed: rules from the last to the first, the first match decides.
func program(rules []*pb.DeviceRule) (p []instruction) {
	p = []instruction{
		{code: loadWord, dst: kind, src: context, offset: 0}, {code: and, dst: kind, imm: 0xffff},
		{code: loadWord, dst: major, src: context, offset: 4},
		{code: loadWord, dst: minor, src: context, offset: 8},
	}
	for i := len(rules) - 1; i >= 0; i-- {
		r := rules[i]
		is, say := int32(unix.BPF_DEVCG_DEV_CHAR), int32(0)
		if r.Block {
			is = unix.BPF_DEVCG_DEV_BLOCK
		}
		if r.Allow {
			say = 1
		}
		tests := []instruction{{code: jumpUnless, dst: kind, imm: is}, {code: jumpUnless, dst: major, imm: int32(r.Major)}}
		if r.Minor >= 0 {
			tests = append(tests, instruction{code: jumpUnless, dst: minor, imm: int32(r.Minor)})
		}
		for j := range tests {
			tests[j].offset = int16(len(tests) - j - 1 + 2)
		}
		p = append(append(p, tests...), instruction{code: move, dst: answer, imm: say}, instruction{code: exit})
	}
	return append(p, instruction{code: move, dst: answer, imm: 1}, instruction{code: exit})
}

func encode(p []instruction) []byte {
	b := make([]byte, 0, 8*len(p))
	for _, i := range p {
		regs := i.dst | i.src<<4
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // big-endian: the bit fields are in reverse order
			regs = i.dst<<4 | i.src
		}
		b = append(b, i.code, regs)
		b = binary.NativeEndian.AppendUint16(b, uint16(i.offset))
		b = binary.NativeEndian.AppendUint32(b, uint32(i.imm))
	}
	return b
}

// loadFilter returns the descriptor of a program for the rules.
func loadFilter(rules []*pb.DeviceRule) (int, error) {
	code, licence := encode(program(rules)), []byte("Apache-2.0\x00")
	attr := struct { // the beginning of union bpf_attr
		kind, count   uint32
		code, licence uint64
		rest          [3]uint64 // no log, no flags
	}{kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(code) / 8), code: address(code), licence: address(licence)}
	load := func() (int, error) { return bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr)) }
	fd, err := load()
	if err == unix.EPERM {
		fd, err = withMemory(load)
	}
	runtime.KeepAlive(code)
	runtime.KeepAlive(licence)
	if err != nil {
		return -1, fmt.Errorf("cannot load a device program into the kernel (bpf(2), BPF_PROG_LOAD): %w", err)
	}
	return fd, nil
}

// attachFilter closes devices to all present and future processes of the directory. Programs of its parents, for instance
// systemd's, still apply.
func attachFilter(dir string, rules []*pb.DeviceRule) error {
	prog, err := loadFilter(rules)
	if err != nil {
		return err
	}
	defer unix.Close(prog) // the directory holds a reference
	return onFolder(unix.BPF_PROG_ATTACH, dir, prog, unix.BPF_F_ALLOW_MULTI)
}

func onFolder(cmd uintptr, dir string, prog int, flags uint32) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open cgroup %s: %w", dir, err)
	}
	defer unix.Close(fd)
	attr := struct{ target, prog, kind, flags uint32 }{uint32(fd), uint32(prog), unix.BPF_CGROUP_DEVICE, flags}
	if _, err := bpf(cmd, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("cannot attach a device program to cgroup %s (bpf(2)): %w", dir, err)
	}
	return nil
}

// tryFilter returns nil if device programs work here: this process may load them, and no parent of dir forbids them. It attaches
// one that closes nothing for a moment.
func tryFilter(dir string) error {
	prog, err := loadFilter(nil)
	if err != nil {
		return err
	}
	defer unix.Close(prog)
	if err := onFolder(unix.BPF_PROG_ATTACH, dir, prog, unix.BPF_F_ALLOW_MULTI); err != nil {
		return err
	}
	return onFolder(unix.BPF_PROG_DETACH, dir, prog, 0)
}

// bpf retries after an interruption: the kernel's verifier returns EAGAIN when a signal comes.
func bpf(cmd uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	for try := 0; ; try++ {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(attr), size)
		switch {
		case errno == 0:
			return int(fd), nil
		case errno != unix.EAGAIN || try > 100:
			return -1, errno
		}
	}
}

// withMemory is for kernels before 5.11, which count programs as locked memory. It raises the limit only for the moment, because
// steps inherit it.
func withMemory(load func() (int, error)) (int, error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		return -1, err
	}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) != nil {
		return -1, unix.EPERM
	}
	fd, err := load()
	if rerr := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); rerr != nil && err == nil {
		unix.Close(fd)
		return -1, rerr
	}
	return fd, err
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
