package step

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// removeContainer deletes a step's container in the background, like removePrivate.
func (r *Runner) removeContainer(b *pb.Bundle) {
	if b.GetContainer() == nil {
		return
	}
	r.removeRun(b.Uid)
	if b.Container.Runtime.GetDisableCleanup() {
		return
	}
	base, name := filepath.Join(r.o.Spool, container.Folder), folder.OfContainer(b.Key)
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		if os.Geteuid() != 0 { // without root, everything belongs to this user
			_ = os.RemoveAll(filepath.Join(base, name))
			return
		}
		if err := private.Remove(r.ctx, base, name); err != nil && r.ctx.Err() == nil {
			r.log.Error("cannot delete the container of a step", "in", base, "name", name, "err", err)
		}
	}()
}

// removeRun deletes what a user's containers shared in memory, once the user has no containers any more.
func (r *Runner) removeRun(uid uint32) {
	base := container.RunFolder(r.o.Spool)
	root, err := os.OpenRoot(base)
	if err != nil {
		return // nothing to delete
	}
	defer root.Close()
	name := strconv.FormatUint(uint64(uid), 10)
	gone := ".ended-" + name
	r.mu.Lock()
	for _, e := range r.steps {
		if e.cg.GetContainer() != nil && e.cg.Uid == uid {
			r.mu.Unlock()
			return
		}
	}
	err = root.Rename(name, gone) // at once, out of the way of a step that starts
	r.mu.Unlock()
	if err == nil {
		err = root.RemoveAll(gone)
	}
	if err != nil && !os.IsNotExist(err) {
		r.log.Error("cannot delete the leftovers of containers", "in", base, "name", name, "err", err)
	}
	_ = os.Remove(base) // succeeds after the last user
}

// clearRun deletes such leftovers of users without a step.
func (r *Runner) clearRun() {
	names, _ := readNames(container.RunFolder(r.o.Spool))
	for _, name := range names {
		if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
			r.removeRun(uint32(uid))
		}
	}
}
