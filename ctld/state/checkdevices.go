package state

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// deviceOwners finds devices that two jobs hold: whole, or whole and in parts, or the same part.
type deviceOwners map[string][]deviceHolder

type deviceHolder struct {
	job uint32
	d   *pb.GresDevice
}

// add records the devices of a share and returns a fault when another job already holds one of them.
func (o deviceOwners) add(v *View, job uint32, a *pb.NodeAlloc) error {
	n := v.Node(a.Node)
	for _, d := range a.Devices {
		if d.Count > 0 {
			continue
		}
		name := d.Name
		if sharing(name) {
			name = "gpu"
		}
		key := fmt.Sprintf("%s %s %d", a.Node, name, d.Index)
		if id := d.Id + d.Parent; id != "" {
			key = a.Node + " " + id
			if d.Parent != "" {
				key = a.Node + " " + d.Parent
			}
		}
		for _, other := range o[key] {
			if n != nil && clash(n, other.d, d) {
				return fmt.Errorf("job %d: %s %d of %s (%s) is job %d's", job, d.Name, d.Index, a.Node, key, other.job)
			}
		}
		o[key] = append(o[key], deviceHolder{job, d})
	}
	return nil
}

func clash(n *Node, a, b *pb.GresDevice) bool {
	switch {
	case a.Share > 0 && b.Share > 0:
		return false // the scheduler counts them
	case a.Parent != "" && b.Parent != "":
		gpu := n.Inv.Current(a)
		return gpu != nil && Overlap(gpu, a, b)
	}
	return true
}
