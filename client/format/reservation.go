package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// ReservationState is ACTIVE while a reservation is in effect, by c's clock.
func ReservationState(c *Context, r *msg.ReservationRecord) string {
	if now := c.Now.UnixNano(); r.GetStartNs() <= now && now < r.GetEndNs() {
		return "ACTIVE"
	}
	return "INACTIVE"
}

func reservedFor(r *msg.ReservationRecord) string {
	return timespec.Clock((r.GetEndNs() - r.GetStartNs()) / int64(time.Second))
}

// AppendReservation writes a reservation as `scontrol show reservation` does.
func AppendReservation(b []byte, c *Context, r *msg.ReservationRecord, oneLine bool) []byte {
	k := newBlock(b, c, oneLine)
	k.put("ReservationName", r.GetName())
	k.when(" StartTime", r.GetStartNs(), "Unknown")
	k.when(" EndTime", r.GetEndNs(), "Unknown")
	k.put(" Duration", reservedFor(r))
	k.line()
	k.put("Nodes", Or(r.GetNodes(), null))
	k.num(" NodeCnt", uint64(r.GetNodeCount()))
	k.num(" CoreCnt", uint64(r.GetCoreCount()))
	k.put(" Features", Or(r.GetFeatures(), null))
	k.put(" PartitionName", Or(r.GetPartition(), null))
	k.put(" Flags", strings.Join(ResvFlags(r), ","))
	for _, p := range r.GetParts() {
		k.line()
		k.put("  NodeName", p.GetNode())
		k.put(" CoreIDs", p.GetCpuIds())
		if gres := partDevices(p); gres != "" {
			k.put(" GRES", gres)
		}
	}
	k.line()
	k.put("TRES", Or(r.GetTres(), null))
	k.line()
	k.put("Users", Or(r.GetUsers(), null))
	k.put(" Groups", Or(r.GetGroups(), null))
	k.put(" Accounts", Or(r.GetAccounts(), null))
	k.put(" Licenses", Or(r.GetLicenses(), null))
	k.put(" State", ReservationState(c, r))
	k.put(" BurstBuffer", null)
	k.put(" Watts", "n/a")
	k.line()
	delay := null
	if s := r.GetMaxStartDelayS(); s != 0 {
		delay = timespec.Clock(int64(s))
	}
	k.put("MaxStartDelay", delay)
	if r.GetComment() != "" {
		k.put(" Comment", r.GetComment())
	}
	if oneLine {
		return append(k.b, '\n')
	}
	return append(k.b, "\n\n"...)
}

// ResvFlags are the flags of a reservation as Slurm shows them: PURGE_COMP has its time, and one has another name.
func ResvFlags(r *msg.ReservationRecord) []string {
	out := make([]string, 0, len(r.GetFlags()))
	for _, f := range r.GetFlags() {
		switch f {
		case "PURGE_COMP":
			f += "=" + timespec.Clock(int64(r.GetPurgeCompS()))
		case "NO_HOLD_JOBS_AFTER":
			f += "_END"
		}
		out = append(out, f)
	}
	return out
}

// partDevices are the device numbers of a part: "gpu:0-1".
func partDevices(p *msg.NodeAlloc) string {
	var names []string
	list := map[string][]string{}
	for _, d := range p.GetDevices() {
		if list[d.GetName()] == nil {
			names = append(names, d.GetName())
		}
		list[d.GetName()] = append(list[d.GetName()], strconv.FormatUint(uint64(d.GetIndex()), 10))
	}
	for i, name := range names {
		names[i] = name + ":" + strings.Join(list[name], ",")
	}
	return strings.Join(names, " ")
}

// AppendReservations writes the table of `sinfo -T`.
func AppendReservations(b []byte, c *Context, list []*msg.ReservationRecord, header bool) []byte {
	width := len("RESV_NAME")
	for _, r := range list {
		width = max(width, len(Escape(r.GetName())))
	}
	if header {
		b = fmt.Appendf(b, "%-*s  %8s  %19s  %19s  %11s  %s\n", width, "RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION",
			"NODELIST")
	}
	for _, r := range list {
		b = fmt.Appendf(b, "%-*s  %8s  %19s  %19s  %11s  %s\n", width, Escape(r.GetName()), ReservationState(c, r),
			c.AppendTime(nil, r.GetStartNs(), "Unknown"),
			c.AppendTime(nil, r.GetEndNs(), "Unknown"), reservedFor(r), Escape(Or(r.GetNodes(), null)))
	}
	return b
}

// AppendLicense writes a license as `scontrol show licenses` does.
func AppendLicense(b []byte, l *msg.LicenseRecord, oneLine bool) []byte {
	b = append(append(b, "LicenseName="...), Escape(l.GetName())...)
	if oneLine {
		b = append(b, ' ')
	} else {
		b = append(b, "\n    "...)
	}
	free := l.GetTotal() - min(l.GetUsed(), l.GetTotal())
	for _, p := range []struct {
		key string
		n   uint32
	}{{"Total", l.GetTotal()}, {" Used", l.GetUsed()}, {" Free", free}, {" Reserved", l.GetReserved()}} {
		b = strconv.AppendUint(append(append(b, p.key...), '='), uint64(p.n), 10)
	}
	return append(b, " Remote=no\n"...)
}
