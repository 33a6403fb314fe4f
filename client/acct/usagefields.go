package acct

import (
	"strconv"

	"github.com/sluice-hpc/sluice/client/format"
)

// measured returns the kinds of usage with columns of their own, for a step that was measured.
func measured(r Row) (in, out []use, ok bool) {
	if r.Step == "" {
		return nil, nil, false
	}
	return used(r)
}

// used returns the whole usage of a line: that of a step or, with -X, where steps have no lines, of the job.
func used(r Row) (in, out []use, ok bool) {
	list := r.usage()
	if r.whole || len(list) == 0 {
		return nil, nil, false
	}
	in, out = r.collect()
	return in, out, true
}

// of formats a figure of one kind; empty if it was not measured.
func of(name string, written bool, text func(c *Context, u *use) string) get {
	return ofRow(name, written, func(c *Context, _ Row, u *use) string { return text(c, u) })
}

func ofRow(name string, written bool, text func(c *Context, r Row, u *use) string) get {
	return func(c *Context, r Row) string {
		in, out, ok := measured(r)
		if !ok {
			return ""
		}
		if written {
			in = out
		}
		if u := find(in, name); u != nil {
			return text(c, r, u)
		}
		return ""
	}
}

func figure(name string, f func(*use) uint64) get {
	return of(name, false, func(c *Context, u *use) string { return c.useText(name, f(u)) })
}

func traffic(written bool, f func(*use) uint64) get {
	return of("fs/disk", written, func(c *Context, u *use) string { return c.Traffic(f(u)) })
}

func most(u *use) uint64      { return u.most().value }
func least(u *use) uint64     { return u.least().value }
func mostNode(u *use) string  { return u.most().node }
func leastNode(u *use) string { return u.least().node }

func node(name string, written bool, f func(*use) string) get {
	return of(name, written, func(_ *Context, u *use) string { return f(u) })
}

// task is the first task of the node with the extreme value: figures are known by node.
func task(name string, written bool, f func(*use) string) get {
	return ofRow(name, written, func(_ *Context, r Row, u *use) string { return number(r.firstTask(f(u))) })
}

// maxima returns the fields from MaxDiskRead to MinCPUTask.
func maxima() []Field {
	return []Field{
		{Name: "MaxDiskRead", Width: 12, Text: traffic(false, most)},
		{Name: "MaxDiskReadNode", Width: 15, Text: node("fs/disk", false, mostNode)},
		{Name: "MaxDiskReadTask", Width: 15, Text: task("fs/disk", false, mostNode)},
		{Name: "MaxDiskWrite", Width: 12, Text: traffic(true, most)},
		{Name: "MaxDiskWriteNode", Width: 16, Text: node("fs/disk", true, mostNode)},
		{Name: "MaxDiskWriteTask", Width: 16, Text: task("fs/disk", true, mostNode)},
		{Name: "MaxPages", Width: 8, Text: figure("pages", most)},
		{Name: "MaxPagesNode", Width: 12, Text: node("pages", false, mostNode)},
		{Name: "MaxPagesTask", Width: 14, Text: task("pages", false, mostNode)},
		{Name: "MaxRSS", Width: 10, Text: figure("mem", most)},
		{Name: "MaxRSSNode", Width: 10, Text: node("mem", false, mostNode)},
		{Name: "MaxRSSTask", Width: 10, Text: task("mem", false, mostNode)},
		{Name: "MaxVMSize", Width: 10, Text: figure("vmem", most)},
		{Name: "MaxVMSizeNode", Width: 14, Text: node("vmem", false, mostNode)},
		{Name: "MaxVMSizeTask", Width: 14, Text: task("vmem", false, mostNode)},
		{Name: "McsLabel", Width: 12, Text: job(func(_ *Context, r Row) string { return r.GetSpec().GetMcsLabel() })},
		{Name: "MinCPU", Width: 10, Text: figure("cpu", least)},
		{Name: "MinCPUNode", Width: 10, Text: node("cpu", false, leastNode)},
		{Name: "MinCPUTask", Width: 10, Text: task("cpu", false, leastNode)},
	}
}

// energy is the energy drawn by the row's GPUs, in joules: empty if the driver does not provide it, and as in Slurm 0 for steps
// without GPUs.
func energy(_ *Context, r Row) string {
	in, _ := r.collect()
	switch u := find(in, "energy"); {
	case u != nil:
		return strconv.FormatUint(u.total(), 10)
	case r.whole, format.HoldsGPUs(r.JobRecord):
		return ""
	}
	return "0"
}

// lists formats a figure of every kind that is read or written.
func lists(written bool, text func(c *Context, r Row, list []use) string) get {
	return func(c *Context, r Row) string {
		in, out, ok := used(r)
		if !ok {
			return ""
		}
		if written {
			in = out
		}
		return text(c, r, in)
	}
}

func usageFields() []Field {
	var list []Field
	for _, dir := range []struct {
		name    string
		wide    int
		written bool
	}{{"TRESUsageIn", 14, false}, {"TRESUsageOut", 15, true}} {
		amount := func(f func(*use) uint64) get {
			return lists(dir.written, func(c *Context, _ Row, l []use) string { return c.usageList(l, f) })
		}
		place := func(f func(*use) string) get {
			return lists(dir.written, func(_ *Context, _ Row, l []use) string { return places(l, f) })
		}
		onTask := func(f func(*use) string) get {
			return lists(dir.written, func(_ *Context, r Row, l []use) string {
				return places(l, func(u *use) string {
					if u.name == "energy" || u.name == "gres/gpumem" || u.name == "gres/gpuutil" {
						return "" // counted for the node
					}
					return number(r.firstTask(f(u)))
				})
			})
		}
		list = append(list, Field{Name: dir.name + "Ave", Width: dir.wide, Text: amount((*use).mean)},
			Field{Name: dir.name + "Max", Width: dir.wide, Text: amount(most)},
			Field{Name: dir.name + "MaxNode", Width: dir.wide + 4, Text: place(mostNode)},
			Field{Name: dir.name + "MaxTask", Width: dir.wide + 4, Text: onTask(mostNode)},
			Field{Name: dir.name + "Min", Width: dir.wide, Text: amount(least)},
			Field{Name: dir.name + "MinNode", Width: dir.wide + 4, Text: place(leastNode)},
			Field{Name: dir.name + "MinTask", Width: dir.wide + 4, Text: onTask(leastNode)},
			Field{Name: dir.name + "Tot", Width: dir.wide, Text: amount((*use).total)})
	}
	return list
}
