package root

import (
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/private"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// setPrivacy takes over what jobs are to have for themselves, and keeps what this machine can do of it. What it cannot is told, once in the
// log and in the node's record, and jobs run without.
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

// report is everything about the devices, and why jobs share what they should not. The caller holds r.mu.
func (r *Root) report() *pb.DeviceReport {
	rep := r.gpus.Report()
	if len(r.shared) == 0 {
		return rep
	}
	return &pb.DeviceReport{Devices: rep.GetDevices(), Mismatches: append(slices.Clone(rep.GetMismatches()), r.shared...),
		Unread: rep.GetUnread()}
}

// sweepPrivate marks what is on disk of steps that nobody knows any more: after a power cut, or with a spool that was in memory.
func (r *Root) sweepPrivate(have []*pb.StepReport) {
	base := r.privacy.GetBase()
	if base == "" {
		return
	}
	known := map[string]bool{}
	for _, rep := range have {
		known[step.Group(rep.Key)] = true
	}
	if err := private.Sweep(base, func(name string) bool { return known[name] }); err != nil {
		r.log.Error("cannot clear the private folders of earlier jobs", "in", base, "err", err)
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

// purgePrivate deletes it. What it does not get to before Close is for the next daemon.
func (r *Root) purgePrivate(base string) {
	if base == "" {
		return
	}
	if err := private.Purge(r.ctx, base); err != nil && r.ctx.Err() == nil {
		r.log.Error("cannot delete the private folders of earlier jobs", "in", base, "err", err)
	}
}
