//go:build pmix && cgo

package pmix

/*
#cgo pkg-config: pmix
#include <stdlib.h>
#include "server.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Built reports whether this program has libpmix.
const Built = true

// From <pmix_common.h>.
const (
	success      = C.int(0)
	failed       = C.int(-1)
	notSupported = C.int(-47)
)

// libpmix is the library. A process has only one instance, and its callbacks carry no more than a rank, so their receiver is
// global.
type libpmix struct{ nspace *C.char }

var calls *server

func open(s *server) library {
	calls = s
	return &libpmix{}
}

func failure(what string, status C.int) error {
	return fmt.Errorf("cannot %s: %s (libpmix)", what, C.GoString(C.pmix_text(status)))
}

// start and the methods below implement library.
func (l *libpmix) start(job *pb.PmixJob) error {
	l.nspace = C.CString(job.Nspace)
	here := job.Places[job.NodeIndex]
	host := C.CString(here.Node)
	defer C.free(unsafe.Pointer(host))
	if rc := C.pmix_serve(host); rc != success {
		return failure("start a PMIx server", rc)
	}
	if rc := l.add(job); rc != success {
		return failure("tell the PMIx server of the step", rc)
	}
	for _, rank := range here.Tasks {
		if rc := C.pmix_add_task(l.nspace, C.uint32_t(rank), C.uint32_t(os.Getuid()), C.uint32_t(os.Getgid())); rc != success {
			return failure(fmt.Sprintf("tell the PMIx server of task %d", rank), rc)
		}
	}
	return nil
}

func (l *libpmix) add(job *pb.PmixJob) C.int {
	size := 0
	for _, p := range job.Places {
		size += len(p.Tasks)
	}
	nodeOf, localOf := make([]C.uint32_t, size), make([]C.uint32_t, size)
	var names, ranks []string
	hosts := make([]*C.char, len(job.Places))
	for i, p := range job.Places {
		hosts[i] = C.CString(p.Node)
		defer C.free(unsafe.Pointer(hosts[i]))
		names, ranks = append(names, p.Node), append(ranks, list(p.Tasks))
		for j, rank := range p.Tasks {
			nodeOf[rank], localOf[rank] = C.uint32_t(i), C.uint32_t(j)
		}
	}
	local := make([]C.uint32_t, len(job.Places[job.NodeIndex].Tasks))
	for i, rank := range job.Places[job.NodeIndex].Tasks {
		local[i] = C.uint32_t(rank)
	}
	nodes, procs, peers := C.CString(strings.Join(names, ",")), C.CString(strings.Join(ranks, ";")), C.CString(ranks[job.NodeIndex])
	defer C.free(unsafe.Pointer(nodes))
	defer C.free(unsafe.Pointer(procs))
	defer C.free(unsafe.Pointer(peers))
	return C.pmix_add_job(l.nspace, nodes, procs, peers, C.uint32_t(size), C.uint32_t(len(names)), C.uint32_t(job.NodeIndex),
		&nodeOf[0], &localOf[0], &hosts[0], &local[0], C.uint32_t(len(local)))
}

// list joins ranks with commas.
func list(ranks []uint32) string {
	var b strings.Builder
	for i, r := range ranks {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(r), 10))
	}
	return b.String()
}

func (l *libpmix) env(rank uint32) (env []string, err error) {
	var status C.int
	got := C.pmix_env(l.nspace, C.uint32_t(rank), &status)
	if status != success {
		return nil, failure(fmt.Sprintf("get the environment of task %d", rank), status)
	}
	defer C.pmix_free_env(got)
	for p := got; p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		env = append(env, C.GoString(*p))
	}
	if len(env) == 0 {
		return nil, errors.New("the PMIx server has no environment for its tasks")
	}
	return env, nil
}

func (l *libpmix) answer(c ticket, status int32, data []byte) {
	C.pmix_answer(unsafe.Pointer(c), C.int(status), unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
}

func (l *libpmix) fetch(rank uint32, id uint64) int32 {
	return int32(C.pmix_fetch(l.nspace, C.uint32_t(rank), C.uintptr_t(id)))
}

//export pmixConnected
func pmixConnected(rank C.uint32_t) { calls.connected(uint32(rank)) }

//export pmixFinalized
func pmixFinalized(rank C.uint32_t) { calls.finalized(uint32(rank)) }

//export pmixAborted
func pmixAborted(rank C.uint32_t, status C.int, text *C.char) {
	said := ""
	if text != nil {
		said = C.GoString(text)
	}
	calls.aborted(uint32(rank), int32(status), said)
}

//export pmixFence
func pmixFence(ranks *C.uint32_t, n C.size_t, data *C.char, size C.size_t, c unsafe.Pointer) C.int {
	if size > maxData {
		return failed
	}
	of := make([]uint32, n)
	for i, r := range unsafe.Slice(ranks, n) {
		of[i] = uint32(r)
	}
	return result(calls.fence(of, C.GoBytes(unsafe.Pointer(data), C.int(size)), ticket(c)))
}

//export pmixModex
func pmixModex(rank C.uint32_t, c unsafe.Pointer) C.int {
	return result(calls.modex(uint32(rank), ticket(c)))
}

//export pmixFetched
func pmixFetched(id C.uintptr_t, status C.int, data *C.char, size C.size_t) {
	var b []byte
	if size > maxData {
		status = failed
	} else if data != nil {
		b = C.GoBytes(unsafe.Pointer(data), C.int(size))
	}
	calls.fetched(uint64(id), int32(status), b)
}

func result(err error) C.int {
	switch {
	case err == nil:
		return success
	case errors.Is(err, errors.ErrUnsupported):
		return notSupported
	}
	return failed
}
