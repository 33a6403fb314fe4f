package step

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxFree bounds the directories kept for reuse: as many as steps may start within one round trip to the controller.
const maxFree = 64

// retire keeps an ended step's directory for its user's next step. If it returns false, the directory must be deleted.
func (r *Runner) retire(e *entry) bool {
	if e.cg == nil || strings.Contains(e.cg.Cgroup, "/") { // an srun step has no script, and a key that must not stay
		return false
	}
	r.mu.Lock()
	if r.frees >= maxFree {
		r.mu.Unlock()
		return false
	}
	r.frees++
	r.made++
	name := folder.Free + strconv.FormatUint(r.made, 10)
	r.mu.Unlock()

	free := r.dir(name)
	err := folder.Retire(r.dir(e.name), free)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.frees--
		folder.Remove(free)
		return false
	}
	r.free[e.cg.Uid] = append(r.free[e.cg.Uid], name)
	return true
}

// write creates the directory of a launch, if possible from one of an earlier step of the same user.
func (r *Runner) write(tmp string, b *pb.Bundle, script []byte) error {
	chown := os.Geteuid() == 0
	if name := r.reusable(b.Uid); name != "" && script != nil {
		free := filepath.Join(r.o.Spool, folder.Steps, name)
		err := folder.Reuse(free, b, script, chown)
		if err == nil {
			err = unix.Rename(free, tmp)
		}
		if err == nil {
			return nil
		}
		folder.Remove(free)
	}
	return folder.Write(tmp, b, script, chown)
}

func (r *Runner) reusable(uid uint32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.free[uid]
	if len(names) == 0 {
		return ""
	}
	r.frees--
	if len(names) == 1 {
		delete(r.free, uid) // users come and go
	} else {
		r.free[uid] = names[:len(names)-1]
	}
	return names[len(names)-1]
}
