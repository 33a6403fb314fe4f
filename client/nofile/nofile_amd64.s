#include "textflag.h"

// func getrlimit(limit *[2]uint64) (errno int64)
TEXT ·getrlimit(SB), NOSPLIT, $0-16
	MOVQ $302, AX // prlimit64
	MOVQ $0, DI
	MOVQ $7, SI // RLIMIT_NOFILE
	MOVQ $0, DX
	MOVQ limit+0(FP), R10
	SYSCALL
	MOVQ AX, errno+8(FP)
	RET
