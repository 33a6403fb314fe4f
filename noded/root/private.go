package root

import (
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// setPrivacy applies the configured privacy of jobs, as far as this machine supports it. What it does not support is shown once
// in the log and in the node's record; jobs run without it.
func (r *Root) setPrivacy(p *pb.Privacy) {
	if r.wanted != nil && proto.Equal(p, r.wanted) {
		return
	}
	r.wanted = proto.CloneOf(p)
	have, whys := private.Available(p, r.sp.dir)
	var shared []string
	for _, why := range whys {
		shared = append(shared, why.Error())
		r.once("jobs are not kept apart as configured", why)
	}
	r.mu.Lock()
	changed := !slices.Equal(r.shared, shared)
	r.privacy, r.shared = have, shared
	r.mu.Unlock()
	if changed {
		r.tell(func(s *session) { s.devices = true })
	}
}

// report returns the device report, plus the reasons why jobs share what should be private. The caller holds r.mu.
func (r *Root) report() *pb.DeviceReport {
	rep := r.gpus.Report()
	if len(r.shared) == 0 {
		return rep
	}
	return &pb.DeviceReport{Devices: rep.GetDevices(), Mismatches: append(slices.Clone(rep.GetMismatches()), r.shared...),
		Unread: rep.GetUnread()}
}

// sweepPrivate marks the private directories of steps that are no longer known, after a power cut or if the spool was in memory.
func (r *Root) sweepPrivate(have []*pb.StepReport) {
	base := r.privacy.GetBase()
	if base == "" {
		return
	}
	known := map[string]bool{}
	for _, rep := range have {
		known[folder.Group(rep.Key)] = true
	}
	if err := private.Sweep(base, func(name string) bool { return known[name] }); err != nil {
		r.log.Error("cannot clear the private directories of earlier jobs", "in", base, "err", err)
	}
}

// sweepContainers does the same for containers.
func (r *Root) sweepContainers(have []*pb.StepReport) {
	if os.Geteuid() != 0 {
		return
	}
	base, known := filepath.Join(r.sp.dir, container.Folder), map[string]bool{}
	for _, rep := range have {
		known[folder.OfContainer(rep.Key)] = true
	}
	if err := private.Sweep(base, func(name string) bool { return known[name] }); err != nil {
		r.log.Error("cannot clear the containers of earlier jobs", "in", base, "err", err)
	}
}

// purgePrivate deletes the marked directories. What it does not finish before Close is left to the next daemon.
func (r *Root) purgePrivate(base string) {
	if base == "" {
		return
	}
	if err := private.Purge(r.ctx, base); err != nil && r.ctx.Err() == nil {
		r.log.Error("cannot delete the private directories of earlier jobs", "in", base, "err", err)
	}
}
