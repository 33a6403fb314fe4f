package gpu

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Found is the input of Merge.
type Found struct {
	GPUs     []Info
	Driver   bool   // there is a driver: a GPU that it does not see does not exist
	NoDriver string // else why not; may be empty
	Topology hw.Topology
	// Stat reads the properties of a device file.
	Stat func(path string) (File, error)
}

// File holds the properties of a device file.
type File struct {
	Device bool // a character or block device
	Minor  int
}

// Merge combines the declarations of gres.conf with the GPUs that the driver sees (gres.conf(5)).
//
// Without a line about GPUs, all that the driver sees belong to the node. A line with File means the GPU of that file; one
// without takes as many as its Count among the GPUs that match its Type. Where the two sides differ, a message says so and GPUs
// are withheld: those that the driver sees and no line names are not offered; those that a line names and the driver does not
// see, or sees as another type, are listed with a fault. Devices of other names are taken from their lines; one whose file is
// missing has a fault. Count alone, without files, makes no devices: the controller counts it.
func Merge(lines []*pb.GresConf, f Found) *pb.DeviceReport {
	m := &merger{f: f, seen: Inventory(f.GPUs, f.Topology), taken: map[string]bool{}, next: map[string]uint32{}}
	gpus, shares, others := m.sort(lines)
	switch {
	case len(gpus) > 0:
		for _, l := range gpus {
			m.gpuLine(l)
		}
		m.rest(gpus)
	case m.detect:
		for _, d := range m.seen {
			m.take(d, "", "")
		}
	}
	m.number()
	for _, l := range others {
		m.fileLine(l)
	}
	for _, l := range shares {
		m.shareLine(l)
	}
	return &pb.DeviceReport{Devices: append(m.gpus, m.others...), Mismatches: m.said}
}

type merger struct {
	f      Found
	detect bool         // AutoDetect
	seen   []*pb.Device // by the driver
	taken  map[string]bool
	gpus   []*pb.Device
	others []*pb.Device
	next   map[string]uint32 // next index, by name of other devices
	said   []string
}

func (m *merger) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(m.said, text) {
		m.said = append(m.said, text)
	}
}

// detects reports whether to look for the driver's GPUs: the last AutoDetect counts, and nvml is the default.
func detects(lines []*pb.GresConf) bool {
	on := true
	for _, l := range lines {
		if l.Autodetect != "" {
			on = !strings.EqualFold(l.Autodetect, "off")
		}
	}
	return on
}

// sort separates the kinds of lines.
func (m *merger) sort(lines []*pb.GresConf) (gpus, shares, others []*pb.GresConf) {
	m.detect = detects(lines)
	for _, l := range lines {
		switch strings.ToLower(l.Autodetect) {
		case "", "off", "nvml", "nvidia", "full":
		default:
			m.say("%s says AutoDetect=%s, which Sluice does not know: it looks for GPUs with nvml", l.Place, l.Autodetect)
		}
		switch l.Name {
		case "":
		case "gpu":
			gpus = append(gpus, l)
		case "shard", "mps":
			shares = append(shares, l)
		default:
			others = append(others, l)
		}
	}
	return gpus, shares, others
}

// gpuLine takes the GPUs of one line.
func (m *merger) gpuLine(l *pb.GresConf) {
	switch {
	case l.MultipleFiles && len(l.Files) > 0:
		m.gpuFile(l, l.Files)
	case len(l.Files) > 0:
		for _, file := range l.Files {
			m.gpuFile(l, []string{file})
		}
	default:
		m.gpuCount(l)
	}
}

// nvidiaFile matches files whose GPU NVIDIA's driver knows, if it exists.
var nvidiaFile = regexp.MustCompile(`/nvidia\d+$`)

// gpuFile takes the GPU with these files.
func (m *merger) gpuFile(l *pb.GresConf, files []string) {
	for _, d := range m.seen {
		if !sameFiles(d, files) {
			continue
		}
		if m.taken[d.Id] {
			m.say("%s names %s a second time", l.Place, files[0])
			return
		}
		fault := ""
		if l.Type != "" && !m.isType(l.Type, d) {
			fault = fmt.Sprintf("%s says that %s is a %s, NVML sees %s", l.Place, files[0], l.Type, article(d.Type))
			m.say("%s", fault)
		}
		t := d.Type
		if fault == "" {
			t = cmp.Or(l.Type, t)
		}
		m.take(with(d, l), t, fault)
		return
	}
	d := m.declared(l, files)
	if m.f.Driver && m.detect && d.Fault == "" && nvidiaFile.MatchString(files[0]) {
		d.Fault = fmt.Sprintf("%s names %s, NVML does not see it", l.Place, strings.Join(files, " with "))
		m.say("%s", d.Fault)
	}
	if m.taken[d.Id] {
		m.say("%s names %s a second time", l.Place, files[0])
		return
	}
	m.taken[d.Id] = true
	m.gpus = append(m.gpus, d)
}

// sameFiles reports whether the files are a device's: its own one, or all of an instance's.
func sameFiles(d *pb.Device, files []string) bool {
	if len(files) == 1 {
		return d.Parent == "" && slices.Contains(d.Files, files[0])
	}
	for _, f := range files {
		if !slices.Contains(d.Files, f) {
			return false
		}
	}
	return len(files) == len(d.Files)
}

// isType reports whether a line's type matches a device.
func (m *merger) isType(typ string, d *pb.Device) bool {
	if d.Parent == "" {
		return typ == d.Type || TypeMatches(typ, d.Model)
	}
	model, profile, _ := strings.Cut(d.Model, " MIG ")
	typ = strings.ToLower(typ)
	return typ == d.Type || typ == profile || strings.Contains(instanceType(LongType(model), profile), typ) &&
		strings.HasSuffix(typ, profile)
}

func article(typ string) string {
	if strings.ContainsRune("aeio", rune(typ[0])) {
		return "an " + typ
	}
	return "a " + typ
}

// with returns a device as its line describes it: the line takes precedence.
func with(d *pb.Device, l *pb.GresConf) *pb.Device {
	c := clone(d)
	c.Declared = l.Place
	c.Cores = cmp.Or(l.Cores, c.Cores)
	if len(l.Links) > 0 && len(l.Files) == 1 {
		c.Links = nil
		for _, n := range l.Links {
			c.Links = append(c.Links, uint32(max(0, n)))
		}
	}
	return c
}

// gpuCount takes the GPUs of a line without files.
func (m *merger) gpuCount(l *pb.GresConf) {
	if !m.f.Driver || !m.detect || slices.Contains(l.Flags, "CountOnly") {
		if m.detect && m.f.NoDriver != "" {
			m.say("%s says %s, no driver is loaded to confirm it: %s", l.Place, counted(l.Count, l.Type), m.f.NoDriver)
		}
		return
	}
	var fit []*pb.Device
	for _, d := range m.seen {
		// A GPU with instances is counted by them, if the line means those.
		if !m.taken[d.Id] && (l.Type == "" && d.Parent == "" || l.Type != "" && m.isType(l.Type, d)) {
			fit = append(fit, d)
		}
	}
	if n := uint64(len(fit)); n != l.Count {
		m.say("NVML sees %s, %s says %s", m.summary(), l.Place, counted(l.Count, l.Type))
		l = &pb.GresConf{Type: l.Type, Count: min(l.Count, n), Cores: l.Cores, Place: l.Place}
	}
	for _, d := range fit[:l.Count] {
		m.take(with(d, l), cmp.Or(l.Type, d.Type), "")
	}
}

func counted(n uint64, typ string) string {
	if typ == "" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d of type %s", n, typ)
}

// summary describes what the driver sees: "8 a100, 1 titan_v", or "no GPU".
func (m *merger) summary() string {
	var order []string
	n := map[string]int{}
	for _, d := range m.seen {
		if n[d.Type] == 0 {
			order = append(order, d.Type)
		}
		n[d.Type]++
	}
	for i, t := range order {
		order[i] = fmt.Sprintf("%d %s", n[t], t)
	}
	return cmp.Or(strings.Join(order, ", "), "no GPU")
}

// take adds a device that the driver sees to the node's.
func (m *merger) take(d *pb.Device, typ, fault string) {
	m.taken[d.Id] = true
	c := clone(d)
	c.Type, c.Fault = cmp.Or(typ, c.Type), fault
	m.gpus = append(m.gpus, c)
}

// rest handles devices that no line has taken: instances come with their GPU, other GPUs are reported and left out.
func (m *merger) rest(lines []*pb.GresConf) {
	var left []string
	for _, d := range m.seen {
		switch {
		case m.taken[d.Id]:
		case d.Parent != "" && m.taken[d.Parent]:
			m.take(d, "", "")
		case d.Parent == "" && !m.cutInto(d):
			left = append(left, d.Type+" "+strings.Join(d.Files, ","))
		}
	}
	if len(left) > 0 && m.detect {
		m.say("NVML sees %s, no line of gres.conf (%s) mentions %s", m.summary(), lines[0].Place, strings.Join(left, ", "))
	}
}

// cutInto reports whether instances of a GPU are among the node's devices.
func (m *merger) cutInto(d *pb.Device) bool {
	return slices.ContainsFunc(m.gpus, func(g *pb.Device) bool { return g.Parent == d.Id })
}

// number assigns the indexes: GPUs by PCI address, then those that are only declared, then all instances. Links are put in the
// same order.
func (m *merger) number() {
	slices.SortStableFunc(m.gpus, func(a, b *pb.Device) int {
		return cmp.Or(cmp.Compare(len(a.Parent), len(b.Parent)), -cmp.Compare(min(1, len(a.Pci)), min(1, len(b.Pci))),
			cmp.Compare(a.Pci, b.Pci), cmp.Compare(a.MigStart, b.MigStart))
	})
	whole := 0
	place := map[string]int{}
	for i, d := range m.gpus {
		if d.Parent == "" {
			d.Index, whole, place[d.Id] = uint32(i), i+1, i
		}
	}
	was := map[string]uint32{} // place in the driver's order
	for _, d := range m.seen {
		was[d.Id] = d.Index
	}
	for i, d := range m.gpus {
		switch p, ok := place[d.Parent]; {
		case d.Parent == "" && d.Declared == "nvml" || d.Parent == "" && m.ownLinks(d):
			d.Links = project(d.Links, m.gpus[:whole], was)
		case d.Parent != "" && ok:
			d.Index = uint32(whole+slotsAGPU*p) + d.MigStart
		case d.Parent != "": // its GPU is not the node's: in the order of the others
			d.Index = uint32(whole + slotsAGPU*whole + i)
		}
	}
}

// ownLinks reports whether a device's links are still those from the driver.
func (m *merger) ownLinks(d *pb.Device) bool {
	return slices.ContainsFunc(m.seen, func(s *pb.Device) bool { return s.Id == d.Id && slices.Equal(s.Links, d.Links) })
}

// project reduces links to the GPUs of the node, in their order.
func project(links []uint32, gpus []*pb.Device, was map[string]uint32) []uint32 {
	if links == nil || len(gpus) < 2 {
		return nil
	}
	out := make([]uint32, len(gpus))
	for i, d := range gpus {
		if n, ok := was[d.Id]; ok && int(n) < len(links) {
			out[i] = links[n]
		}
	}
	return out
}
