package state

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Inventory lists the generic resources of a node: its configuration (Gres= in slurm.conf) compared with the devices that its daemon has
// found and gres.conf declares. Where they differ, the common part counts: a mismatch costs the difference, not the node. Immutable.
type Inventory struct {
	Gres   string // as sinfo shows it: "gpu:a100:8(S:0-1),shard:64(S:0-1)"
	Kinds  []Kind
	Differ []string // the differences, in words

	byID    map[string]*pb.Device
	dynamic bool // GPUs are cut into instances on request
}

// Kind is a resource of one name and type.
type Kind struct {
	Name, Type string
	Count      uint64 // as configured, or as found where nothing is configured
	NoConsume  bool
	// Devices are the existing ones, faulty ones included, in order of their index. A resource that is only counted has none, but GPUs that
	// are only counted have one each, without identity.
	Devices []*pb.Device
	Shared  bool // shards or mps: parts of the devices of other kinds
}

// GresConfig is the configuration of a node's generic resources beside Gres=.
type GresConfig struct {
	Lines      []*pb.GresConf
	DynamicMIG bool
}

// Recount makes the inventory of a node record anew, after its configuration or report has changed.
func (n *Node) Recount() {
	n.Inv = newInventory(n.NodeRecord, &n.GresConf)
}

// HasGPUs reports whether the node has GPUs of a type, free or not.
func (n *Node) HasGPUs(typ string) bool {
	return n.Inv != nil && slices.ContainsFunc(n.Inv.Kinds, func(k Kind) bool { return k.Name == "gpu" && k.Type == typ && k.Count > 0 })
}

func newInventory(n *pb.NodeRecord, cfg *GresConfig) *Inventory {
	b := builder{n: n, cfg: cfg, inv: &Inventory{byID: map[string]*pb.Device{}, dynamic: cfg.DynamicMIG}}
	for _, d := range n.GetReported().GetDevices() {
		b.all = append(b.all, b.near(d))
	}
	b.left = usable(b.all, cfg.DynamicMIG)
	said, _ := tres.ParseNodeGres(n.Gres) // cannot fail: conf has read it
	for _, d := range b.all {
		if d.Id != "" {
			b.inv.byID[d.Id] = d
		}
	}
	for _, g := range said {
		if !sharing(g.Name) {
			b.configured(g)
		}
	}
	b.rest(said)
	b.shares(said)
	b.uncut()
	b.empty()
	b.inv.Differ = append(b.inv.Differ, slices.DeleteFunc(slices.Clone(n.GetReported().GetMismatches()),
		func(s string) bool { return slices.Contains(b.inv.Differ, s) })...)
	b.inv.Gres = b.text()
	return b.inv
}

// usable returns the devices that can be given to jobs as they are. A GPU that is cut into instances cannot; where GPUs are cut on request,
// the GPU can, and its instances are parts of it.
func usable(all []*pb.Device, dynamic bool) []*pb.Device {
	cut := map[string]bool{}
	for _, d := range all {
		if d.Parent != "" {
			cut[d.Parent] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(d *pb.Device) bool {
		if dynamic && len(d.MigProfiles) > 0 {
			return false
		}
		if d.Parent != "" {
			return dynamic && slices.ContainsFunc(all, func(p *pb.Device) bool { return p.Id == d.Parent && len(p.MigProfiles) > 0 })
		}
		return cut[d.Id] || d.MigMode == "on"
	})
}

// empty reports the GPUs that no job can use: in MIG mode CUDA runs in instances only, and these GPUs have none.
func (b *builder) empty() {
	if b.cfg.DynamicMIG {
		return
	}
	var which []string
	for _, d := range b.all {
		if d.Name == "gpu" && d.Parent == "" && d.MigMode == "on" && !slices.ContainsFunc(b.all,
			func(part *pb.Device) bool { return part.Parent == d.Id }) {
			which = append(which, DeviceName(d))
		}
	}
	if len(which) > 0 {
		b.differ(
			"%s: in MIG mode without instances, so no job can use it (create some with nvidia-smi mig, or have them created on demand: "+
				"SlurmdParameters=gpu_mig=dynamic)", strings.Join(which, ", "))
	}
}

// sharing reports whether a resource is a part of a GPU.
func sharing(name string) bool { return name == "shard" || name == "mps" }

type builder struct {
	n    *pb.NodeRecord
	cfg  *GresConfig
	inv  *Inventory
	all  []*pb.Device // reported by the node
	left []*pb.Device // not taken by a kind yet
}

// near restricts the cores near a device to those that its node has: slurm.conf may name fewer than exist, gres.conf any.
func (b *builder) near(d *pb.Device) *pb.Device {
	cores, err := ParseCores(d.Cores)
	have := int(b.n.Sockets * b.n.Cores)
	if err != nil || have == 0 || cores.Count() == 0 || !cores.beyond(have) {
		return d
	}
	c := pb.ShallowCopy(d)
	c.Cores = cores.below(have).String()
	if d.Declared != "" && d.Declared != "nvml" {
		text := fmt.Sprintf("%s says Cores=%s, the node has cores 0-%d", d.Declared, d.Cores, have-1)
		if !slices.Contains(b.inv.Differ, text) {
			b.inv.Differ = append(b.inv.Differ, text)
		}
	}
	return c
}

// configured adds the resources of Gres=. A resource without declared or found devices is counted (gres.conf(5): the file may be omitted
// where slurm.conf is complete).
func (b *builder) configured(g tres.Gres) {
	if g.NoConsume || !b.known(g.Name) {
		k := Kind{Name: g.Name, Type: g.Type, Count: g.Count, NoConsume: g.NoConsume}
		if g.Name == "gpu" && !g.NoConsume {
			k.Devices = b.counted(g)
			if r := b.n.Reported; r != nil && !r.Unread {
				b.differ("slurm.conf says %s, but neither a driver nor gres.conf says which devices these are, so they are only counted", g)
			}
		}
		b.inv.Kinds = append(b.inv.Kinds, k)
		return
	}
	var mine []*pb.Device
	b.left = slices.DeleteFunc(b.left, func(d *pb.Device) bool {
		take := d.Name == g.Name && uint64(len(mine)) < g.Count && typed(d, g.Type)
		if take {
			mine = append(mine, d)
		}
		return take
	})
	if n := uint64(len(mine)); n < g.Count {
		b.differ("slurm.conf says %s, the node has %d: %d less can be used", g, n, g.Count-n)
	}
	if g.Type != "" {
		b.inv.Kinds = append(b.inv.Kinds, Kind{Name: g.Name, Type: g.Type, Count: g.Count, Devices: mine})
		return
	}
	first := len(b.inv.Kinds)
	b.byType(mine)
	if missing := g.Count - min(g.Count, uint64(len(mine))); missing > 0 {
		if first == len(b.inv.Kinds) {
			b.inv.Kinds = append(b.inv.Kinds, Kind{Name: g.Name})
		}
		b.inv.Kinds[first].Count += missing
	}
}

// known reports whether a device of that name was found or declared, so that devices count.
func (b *builder) known(name string) bool {
	for _, d := range b.all {
		if d.Name == name {
			return true
		}
	}
	if b.n.Reported == nil || b.n.Reported.Unread { // slurm.conf is trusted
		return false
	}
	for _, line := range b.cfg.Lines {
		if line.Name == name && len(line.Files) > 0 || name == "gpu" && line.Autodetect != "" && line.Autodetect != "off" {
			return true
		}
	}
	return name == "gpu" && b.n.Reported.Driver != ""
}

// typed reports whether a device has the type that slurm.conf or a job names, or a model of that name.
func typed(d *pb.Device, typ string) bool {
	if typ == "" || d.Type == typ {
		return true
	}
	model := strings.ToLower(strings.ReplaceAll(d.Model, " ", "_"))
	return d.Parent == "" && len(typ) > 2 && strings.Contains(model, strings.ToLower(typ))
}

// counted returns GPUs without identity, numbered over all types.
func (b *builder) counted(g tres.Gres) []*pb.Device {
	next := uint32(0)
	for _, k := range b.inv.Kinds {
		if k.Name == g.Name {
			next += uint32(len(k.Devices))
		}
	}
	out := make([]*pb.Device, min(g.Count, maxCounted))
	for i := range out {
		out[i] = &pb.Device{Name: g.Name, Type: g.Type, Index: next + uint32(i), Minor: -1, Numa: -1}
		if b.n.GetReported().GetUnread() {
			out[i].Fault = pb.GresUnread
		}
	}
	return out
}

// maxCounted bounds the GPUs of a node that are only counted.
const maxCounted = 1024

// rest adds the found devices that slurm.conf does not name. If slurm.conf names others of that name, this is a difference.
func (b *builder) rest(said []tres.Gres) {
	extra := map[string]int{}
	b.left = slices.DeleteFunc(b.left, func(d *pb.Device) bool {
		named := slices.ContainsFunc(said, func(g tres.Gres) bool { return g.Name == d.Name })
		if named {
			extra[gresName(d.Name, d.Type)]++
		}
		return named
	})
	for _, name := range sortedKeys(extra) {
		text := "the node has %d %s that Gres= in slurm.conf does not name: not used"
		if at := slices.IndexFunc(said, func(g tres.Gres) bool { return g.Name == name }); at >= 0 && said[at].Type != "" {
			text += " (say Type=" + said[at].Type + " in gres.conf, or no type in Gres=)"
		}
		b.differ(text, extra[name], name)
	}
	b.byType(b.left)
}

func (b *builder) byType(list []*pb.Device) {
	for _, d := range list {
		i := slices.IndexFunc(b.inv.Kinds, func(k Kind) bool { return k.Name == d.Name && k.Type == d.Type })
		if i < 0 {
			b.inv.Kinds = append(b.inv.Kinds, Kind{Name: d.Name, Type: d.Type})
			i = len(b.inv.Kinds) - 1
		}
		b.inv.Kinds[i].Devices = append(b.inv.Kinds[i].Devices, d)
		b.inv.Kinds[i].Count++
	}
}

// shares adds shards and mps. Those that the node has not spread over its devices are spread here, by memory.
func (b *builder) shares(said []tres.Gres) {
	for _, g := range said {
		if !sharing(g.Name) || g.NoConsume {
			continue
		}
		if !slices.ContainsFunc(b.inv.Kinds, func(k Kind) bool {
			return slices.ContainsFunc(k.Devices, func(d *pb.Device) bool { return d.SharedAs == g.Name })
		}) {
			b.spread(g)
		}
	}
	total := map[string]uint64{}
	of := map[string][]*pb.Device{}
	for _, k := range b.inv.Kinds {
		for _, d := range k.Devices {
			if d.Shares > 0 {
				name := cmp.Or(d.SharedAs, "shard")
				total[name] += d.Shares
				of[name] = append(of[name], d)
			}
		}
	}
	for _, name := range sortedKeys(total) {
		typ := ""
		for _, g := range said {
			if g.Name == name {
				typ = g.Type
				if g.Count != total[name] {
					b.differ("slurm.conf says %s, the devices have %d", g, total[name])
				}
			}
		}
		b.inv.Kinds = append(b.inv.Kinds, Kind{Name: name, Type: typ, Count: total[name], Devices: of[name], Shared: true})
	}
}

// spread divides shards among the GPUs in proportion to their memory (mps evenly), the remainder to the first. A missing GPU keeps its
// part: its shards are lost while it is away, and the other GPUs keep theirs.
func (b *builder) spread(g tres.Gres) {
	var weight, given uint64
	missing := false
	var on []*pb.Device
	for i := range b.inv.Kinds {
		k := &b.inv.Kinds[i]
		if k.Name != "gpu" || g.Type != "" && k.Type != g.Type {
			continue
		}
		for at, d := range k.Devices {
			if d.SharedAs != "" {
				continue // gres.conf has its own number for this one
			}
			c := pb.ShallowCopy(d)
			c.SharedAs = g.Name
			k.Devices[at] = c
			on = append(on, c)
			weight += worth(g.Name, c)
		}
		if n := uint64(len(k.Devices)); n > 0 && k.Count > n {
			missing = true
			weight += (k.Count - n) * worth(g.Name, k.Devices[0])
		}
	}
	if len(on) == 0 {
		b.differ("slurm.conf says %s, and there is no GPU to share", g)
		return
	}
	for _, d := range on {
		hi, lo := bits.Mul64(g.Count, worth(g.Name, d))
		d.Shares, _ = bits.Div64(hi, lo, weight) // at most the count, as no worth exceeds the weight
		given += d.Shares
	}
	for i := 0; !missing && given < g.Count; i, given = i+1, given+1 {
		on[i%len(on)].Shares++
	}
	for _, d := range on {
		if d.Id != "" {
			b.inv.byID[d.Id] = d
		}
	}
}

// worth returns the weight of a GPU for the spreading of shares.
func worth(name string, d *pb.Device) uint64 {
	if name == "mps" {
		return 1
	}
	return max(d.MemoryMib, 1)
}

// uncut reports the GPUs that cannot be cut, where they should be cut on request.
func (b *builder) uncut() {
	if !b.cfg.DynamicMIG {
		return
	}
	for _, d := range b.all {
		if why := Uncut(d); why != "" {
			b.differ("%s: %s", DeviceName(d), why)
		}
	}
}

func (b *builder) differ(format string, args ...any) {
	b.inv.Differ = append(b.inv.Differ, fmt.Sprintf(format, args...))
}

// text returns Gres as sinfo shows it, with the sockets of the devices.
func (b *builder) text() string {
	parts := make([]string, len(b.inv.Kinds))
	for i := range b.inv.Kinds {
		k := &b.inv.Kinds[i]
		parts[i] = tres.Gres{Name: k.Name, Type: k.Type, Count: k.Count, NoConsume: k.NoConsume}.String() + b.sockets(k)
	}
	return strings.Join(parts, ",")
}

// sockets returns "(S:0-1)", or "" when the devices' sockets are not known.
func (b *builder) sockets(k *Kind) string {
	var set Cores
	for _, d := range k.Devices {
		cores, err := ParseCores(d.Cores)
		if err != nil {
			return "" // from a daemon of another version
		}
		for c := range cores.All() {
			one, _ := ParseCores(strconv.Itoa(c / int(max(1, b.n.Cores))))
			set = set.With(one)
		}
	}
	if set.Count() == 0 {
		return ""
	}
	return "(S:" + set.String() + ")"
}

// Has reports whether the node has anything of a name.
func (v *Inventory) Has(name string) bool {
	return v != nil && slices.ContainsFunc(v.Kinds, func(k Kind) bool { return k.Name == name })
}

// Device finds a device by its identity; nil when the node no longer has it.
func (v *Inventory) Device(id string) *pb.Device {
	if v == nil {
		return nil
	}
	return v.byID[id]
}

// Current returns the node's current record of a device that a job holds: the same one by identity, even if its index has changed; nil when
// it is gone. A device without identity is found by its index.
func (v *Inventory) Current(d *pb.GresDevice) *pb.Device {
	if v == nil {
		return nil
	}
	id := d.Id
	if d.Parent != "" {
		id = d.Parent
	}
	if id != "" && v.byID[id] != nil {
		return v.byID[id]
	}
	if id != "" && len(v.byID) > 0 {
		return nil
	}
	for _, k := range v.Kinds {
		for _, have := range k.Devices {
			if have.Index == d.Index && (have.Name == d.Name || k.Name == d.Name) {
				return have
			}
		}
	}
	return nil
}

func gresName(name, typ string) string {
	if typ == "" {
		return name
	}
	return name + ":" + typ
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// GresText formats the devices of a share for scontrol: "gpu:a100:2(IDX:0-1)".
func GresText(list []*pb.GresDevice) string {
	type shown struct {
		tres.Gres
		index Cores
	}
	var parts []shown
	for _, d := range list {
		at := slices.IndexFunc(parts, func(p shown) bool { return p.Name == d.Name && p.Type == d.Type })
		if at < 0 {
			parts = append(parts, shown{Gres: tres.Gres{Name: d.Name, Type: d.Type}})
			at = len(parts) - 1
		}
		if d.Count > 0 {
			parts[at].Count += uint64(d.Count)
			continue
		}
		parts[at].Count += uint64(max(d.Share, 1))
		set, _ := ParseCores(strconv.Itoa(int(d.Index)))
		parts[at].index = parts[at].index.With(set)
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String()
		if p.index.Count() > 0 {
			words[i] += "(IDX:" + p.index.String() + ")"
		}
	}
	return strings.Join(words, ",")
}

// Withheld returns the reason why a device is not given to jobs now; "" if there is none.
func Withheld(d *pb.Device) string {
	switch {
	case d.Fault != "":
		return d.Fault
	case d.Foreign != "":
		return "in use outside of any job by " + d.Foreign
	}
	return ""
}

// DeviceName describes a device: "gpu 3 (a100)".
func DeviceName(d *pb.Device) string {
	s := d.Name + " " + strconv.FormatUint(uint64(d.Index), 10)
	if d.Type != "" {
		s += " (" + d.Type + ")"
	}
	return s
}
