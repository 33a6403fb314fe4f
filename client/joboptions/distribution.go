package joboptions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// arbitrary is the distribution in the order of an explicit list of nodes.
const arbitrary = "arbitrary"

// setDistribution reads type[:type[:type]][,Pack|NoPack], or Pack or NoPack alone, and stores it in the format of
// SLURM_DISTRIBUTION: in lower case, with "*" replaced by the default.
func setDistribution(r *Request, value string, _ bool) error {
	head, pack, packed := strings.Cut(strings.ToLower(value), ",")
	if head == "pack" || head == "nopack" {
		head, pack, packed = "", head, !packed // no comma
	}
	ok := packed == (pack == "pack" || pack == "nopack")
	if size, plane := strings.CutPrefix(head, "plane"); plane {
		if n, err := strconv.ParseUint(strings.TrimPrefix(size, "="), 10, 16); err != nil || n == 0 || packed {
			e := invalid("distribution", value, "plane=n takes a number from 1").(*opt.ValueError)
			e.Lines = append([]string{"Invalid plane size or size not specified"}, e.Lines...)
			return e
		}
		r.Spec.Distribution = head
		return nil
	}
	levels := strings.Split(head, ":")
	for i, l := range levels {
		switch {
		case l == "*" && i == 0:
			levels[i] = "block"
		case l == "*":
			levels[i] = "cyclic"
		case l == "block", l == "cyclic", l == "fcyclic" && i > 0, l == arbitrary && len(levels) == 1, head == "" && packed:
		default:
			ok = false
		}
	}
	if !ok || len(levels) > 3 {
		return invalid("distribution", value,
			"expected block, cyclic, arbitrary, plane=n or block|cyclic[:block|cyclic|fcyclic], then [,Pack|NoPack]")
	}
	r.Spec.Distribution = strings.Join(levels, ":")
	if packed {
		r.Spec.Distribution = strings.TrimPrefix(r.Spec.Distribution+","+pack, ",")
	}
	return nil
}

// checkArbitrary places a job with SLURM_HOSTFILE and without --nodelist on the nodes of that file, in its order, whatever
// --distribution says. It rejects --distribution=arbitrary without any nodes (sbatch(1)).
func (r *Request) checkArbitrary() error {
	s := r.Spec
	if r.hostfile != "" && s.ReqNodes == "" {
		s.Distribution = arbitrary
	}
	if s.Distribution != arbitrary {
		return nil
	}
	if s.ReqNodes == "" && r.hostfile == "" {
		return &opt.ValueError{Lines: []string{"With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option"},
			Exit: 1, Hint: "name the nodes with --nodelist, or a file with their names in SLURM_HOSTFILE"}
	}
	if s.ReqNodes == "" {
		if err := r.useHostfile(); err != nil {
			return err
		}
	}
	if names, err := hostlist.Expand(s.ReqNodes); err == nil && s.NumTasks == 0 { // checkNodeList rejects lists that Expand cannot read
		slices.Sort(names)
		s.NumTasks = uint32(len(slices.Compact(names)))
	}
	return nil
}

// useHostfile reads the nodes of SLURM_HOSTFILE: one per task, or NODE*TASKS.
func (r *Request) useHostfile() error {
	refuse := func(words, hint string) error {
		return &opt.ValueError{Lines: []string{words, "Failure getting NodeNames from hostfile"}, Exit: 1, Hint: hint}
	}
	path := r.hostfile
	if !strings.Contains(path, "/") {
		path = "./" + path
	}
	list, err := r.hostFile("nodelist", path)
	if e, ok := err.(*opt.ValueError); ok && e.Hint == "" { // it cannot be opened
		return refuse(e.Lines[0], "SLURM_HOSTFILE names it")
	}
	if err != nil {
		return At(err, "from the variable SLURM_HOSTFILE")
	}
	names, tasks := []string{}, uint64(0)
	for word := range strings.SplitSeq(list, ",") {
		name, times, many := strings.Cut(word, "*")
		n, err := uint64(1), error(nil)
		if many {
			n, err = strconv.ParseUint(times, 10, 31)
		}
		if err != nil {
			return refuse("Invalid hostfile "+opt.Quoted(r.hostfile), fmt.Sprintf("%q is not NODE or NODE*TASKS", opt.Quoted(word)))
		}
		names, tasks = append(names, name), tasks+n
	}
	if uint64(r.Spec.NumTasks) > tasks {
		return refuse("Too few NodeNames in Slurm Hostfile",
			msg.Singular(fmt.Sprintf("%s has nodes for %d tasks, the job has %d", opt.Quoted(r.hostfile), tasks, r.Spec.NumTasks)))
	}
	r.Spec.ReqNodes = strings.Join(names, ",")
	return nil
}
