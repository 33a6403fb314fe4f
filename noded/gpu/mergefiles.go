package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// StatFile reads the properties of a device file of this machine.
func StatFile(path string) (File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return File{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	return File{Device: kind == unix.S_IFCHR || kind == unix.S_IFBLK, Minor: int(unix.Minor(st.Rdev))}, nil
}

// declared returns a device that a line declares by its files and the driver does not know.
func (m *merger) declared(l *pb.GresConf, files []string) *pb.Device {
	d := &pb.Device{Name: l.Name, Type: l.Type, Id: files[0], Files: files, Minor: NA, Numa: NA, Cores: l.Cores, Declared: l.Place}
	if len(files) == 1 && len(l.Files) == 1 {
		for _, n := range l.Links {
			d.Links = append(d.Links, uint32(max(0, n)))
		}
	}
	for _, path := range files {
		f, err := m.f.Stat(path)
		switch {
		case err != nil:
			d.Fault = fmt.Sprintf("%s names %s, which %s", l.Place, path, why(err))
			m.say("%s", d.Fault)
		case !f.Device:
			m.say("%s names %s, which is not a device file, so access to it cannot be restricted", l.Place, path)
		case path == files[0]:
			d.Minor = int32(f.Minor)
		}
	}
	return d
}

func why(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "is not there"
	}
	return "cannot be looked at: " + err.Error()
}

// fileLine takes the devices of a line with a name other than gpu.
func (m *merger) fileLine(l *pb.GresConf) {
	if len(l.Files) == 0 {
		return
	}
	groups := [][]string{l.Files}
	if !l.MultipleFiles {
		groups = nil
		for _, f := range l.Files {
			groups = append(groups, []string{f})
		}
	}
	for _, files := range groups {
		key := l.Name + " " + files[0]
		if m.taken[key] {
			m.say("%s names %s a second time", l.Place, files[0])
			continue
		}
		m.taken[key] = true
		d := m.declared(l, files)
		d.Index = m.next[l.Name]
		m.next[l.Name]++
		m.others = append(m.others, d)
	}
}

// shareLine makes GPUs shareable: those of the line's files, else all without instances. A count for several GPUs is divided
// among them: shards by memory, mps evenly. Shards without a count are one for each GiB.
func (m *merger) shareLine(l *pb.GresConf) {
	var on []*pb.Device
	for _, d := range m.gpus {
		if d.Parent == "" && d.MigMode != "on" && d.MigMode != "pending on" &&
			(len(l.Files) == 0 || slices.ContainsFunc(l.Files, func(f string) bool { return slices.Contains(d.Files, f) })) {
			on = append(on, d)
		}
	}
	if len(on) == 0 {
		m.say("%s says %s, there is no GPU to share", l.Place, l.Name)
		return
	}
	var weights []uint64
	for _, d := range on {
		weights = append(weights, weight(d, l.Name))
	}
	shares := spreadOver(l.Count, weights)
	for i, d := range on {
		switch {
		case d.SharedAs != "" && d.SharedAs != l.Name:
			m.say("%s says %s of %s, which is shared as %s already", l.Place, l.Name, d.Files[0], d.SharedAs)
		case l.Count == 0 && l.Name == "shard":
			d.SharedAs, d.Shares = l.Name, max(1, weights[i])
		case shares[i] > 0:
			d.SharedAs, d.Shares = l.Name, shares[i]
		}
	}
}

// weight is a GPU's weight when shares are divided: GiB of memory for shards.
func weight(d *pb.Device, name string) uint64 {
	if name != "shard" {
		return 1
	}
	return cmp.Or((d.MemoryMib+512)/1024, 1)
}

// spreadOver divides a count by weights, exactly: the largest remainders are rounded up, among equal ones the first.
func spreadOver(count uint64, weights []uint64) []uint64 {
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	out := make([]uint64, len(weights))
	if sum == 0 {
		return out
	}
	order := make([]int, len(weights))
	left := count
	rest := make([]uint64, len(weights))
	for i, w := range weights {
		// count is bounded by gres.conf's 64 bits and weights by memory: divide first where it would overflow.
		q, r := count/sum, count%sum
		out[i] = q*w + r*w/sum
		rest[i] = r * w % sum
		left -= out[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, i := range order[:left] {
		out[i]++
	}
	return out
}

func clone(d *pb.Device) *pb.Device { return proto.Clone(d).(*pb.Device) }
