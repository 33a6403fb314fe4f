package joboptions

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// mostCount is the largest valid count of tasks, CPUs or nodes: Slurm reserves larger values for "not set".
const mostCount = 1<<31 - 1

// number reads a count that is not below least.
func number(option, value string, least uint64) (uint32, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	switch {
	case err != nil && strings.HasPrefix(value, "="):
		return 0, invalidNumber(option, value, "after a single-letter option the value is written without =, as in -n4 or -n 4")
	case err != nil && allDigits(value), err == nil && n > mostCount:
		return 0, invalidNumber(option, value, fmt.Sprintf("at most %d", mostCount))
	case err != nil || n < least:
		return 0, invalidNumber(option, value, fmt.Sprintf("expected a whole number from %d", least))
	}
	return uint32(n), nil
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// setCoreSpec checks the value and ignores it: Sluice has no AllowSpecResourcesUsage, without which Slurm ignores the option, too.
func setCoreSpec(r *Request, value string, _ bool) error {
	_, err := number("core-spec", value, 0)
	r.NotAllowed = append(r.NotAllowed, "-S")
	return err
}

func setThreadSpec(r *Request, value string, _ bool) error {
	_, err := number("thread-spec", value, 0)
	r.NotAllowed = append(r.NotAllowed, "--thread-spec")
	return err
}

// Memory.

func setMem(r *Request, value string, _ bool) error {
	mib, err := tres.ParseMiB(value)
	if err != nil {
		return invalid("mem", value, err)
	}
	r.Spec.MemPerNodeMib, r.Spec.MemAll = mib, mib == 0
	return nil
}

func setMemPerCPU(r *Request, value string, _ bool) error {
	mib, err := tres.ParseMiB(value)
	if err != nil {
		return invalid("mem-per-cpu", value, err)
	}
	r.Spec.MemPerCpuMib, r.Spec.MemAll = mib, mib == 0
	return nil
}

func setMemPerGPU(r *Request, value string, _ bool) error {
	mib, err := tres.ParseMiB(value)
	if err != nil {
		return invalid("mem-per-gpu", value, err)
	}
	r.Spec.MemPerGpuMib, r.Spec.MemPerTres = mib, "gres/gpu:"+strconv.FormatUint(mib, 10)
	return nil
}

func setTmp(r *Request, value string, _ bool) (err error) {
	if r.Spec.TmpDiskMib, err = tres.ParseMiB(value); err != nil {
		return invalid("tmp", value, err)
	}
	return nil
}

// Nodes.

// setNodes reads "2", "2-4", "2,4,8" and "4-16:4"; k and m multiply by 1,024 and 1,048,576.
func setNodes(r *Request, value string, _ bool) error {
	low, high, set, err := nodeCounts(value)
	if err != nil {
		return err
	}
	r.Spec.MinNodes, r.Spec.MaxNodes, r.Spec.NodesSet = low, high, set
	return nil
}

func nodeCounts(value string) (low, high uint32, set string, err error) {
	for _, part := range strings.Split(value, ",") {
		span, step, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		a, ok := nodeCount(first)
		b, okLast := a, true
		if ranged {
			b, okLast = nodeCount(last)
		}
		if !ok || !okLast || (stepped && (!ranged || !allDigits(step) || strings.Trim(step, "0") == "")) {
			return 0, 0, "", notANodeCount(value)
		}
		if b < a {
			return 0, 0, "", &opt.ValueError{Lines: []string{fmt.Sprintf("Maximum node count %d is less than minimum node count %d", b, a)},
				Exit: 255, Hint: fmt.Sprintf("--nodes=%s: write the smaller number first", opt.Quoted(value))}
		}
		if a == 0 {
			return 0, 0, "", &opt.ValueError{Lines: []string{refusedJob + "Node count specification invalid"},
				Exit: 1, Hint: fmt.Sprintf("--nodes=%s: a job needs at least one node", opt.Quoted(value))}
		}
		if low == 0 || a < low {
			low = a
		}
		high = max(high, b)
		if stepped || strings.Contains(value, ",") {
			set = value
		}
	}
	return low, high, set, nil
}

func notANodeCount(value string) error {
	return &opt.ValueError{Lines: []string{fmt.Sprintf("\"%s\" is not a valid node count", opt.Quoted(value))}, Exit: 255,
		Hint: "expected a number or a range: 2, 2-4, 2,4,8, 4-16:4"}
}

func nodeCount(s string) (uint32, bool) {
	unit := uint64(1)
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			unit, s = 1<<10, s[:len(s)-1]
		case 'm', 'M':
			unit, s = 1<<20, s[:len(s)-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || !allDigits(s) || n*unit > mostCount {
		return 0, false
	}
	return uint32(n * unit), true
}

// hosts checks a host list; a value with a slash is the name of a file with the list.
func (r *Request) hosts(option, value string) (string, error) {
	if strings.Contains(value, "/") {
		return r.hostFile(option, value)
	}
	if err := printable(option, value); err != nil {
		return "", err
	}
	if _, err := hostlist.Count(value); err != nil {
		return "", badHosts(option, value, err)
	}
	return value, nil
}

func badHosts(option, value string, err error) error {
	return &opt.ValueError{Lines: []string{refusedJob + "Invalid node name specified"}, Exit: 1,
		Hint: fmt.Sprintf("--%s=%s: %v", option, opt.Quoted(value), err)}
}

// mostHostFileBytes bounds the file of --nodefile: 65,536 names of 64 bytes.
const mostHostFileBytes = 4 << 20

func (r *Request) hostFile(option, path string) (string, error) {
	data, err := r.readFile(path)
	if err != nil {
		why := err.Error()
		if i := strings.LastIndex(why, ": "); i >= 0 && i+2 < len(why) {
			why = strings.ToUpper(why[i+2:i+3]) + why[i+3:]
		}
		return "", &opt.ValueError{Lines: []string{"slurm_allocate_resources error opening file " + opt.Quoted(path) + ", " + why,
			"Invalid --" + option + " node file"}, Exit: 255}
	}
	if len(data) > mostHostFileBytes {
		return "", &opt.ValueError{Lines: []string{"Invalid --" + option + " node file"}, Exit: 255,
			Hint: fmt.Sprintf("%s has %d bytes, the limit is %d", opt.Quoted(path), len(data), mostHostFileBytes)}
	}
	list := strings.Join(strings.Fields(string(data)), ",")
	if _, err := hostlist.Count(list); err != nil {
		return "", badHosts(option, path, err)
	}
	return list, printable(option, list)
}

func setNodeList(r *Request, value string, _ bool) (err error) {
	r.Spec.ReqNodes, err = r.hosts("nodelist", value)
	return err
}

func setExclude(r *Request, value string, _ bool) (err error) {
	r.Spec.ExcNodes, err = r.hosts("exclude", value)
	return err
}

func setNodeFile(r *Request, value string, _ bool) (err error) {
	r.Spec.ReqNodes, err = r.hostFile("nodefile", value)
	return err
}

// setNodeInfo reads sockets[:cores[:threads]]; "*" leaves a part open.
func setNodeInfo(r *Request, value string, _ bool) error {
	parts := strings.Split(value, ":")
	if len(parts) > 3 {
		return invalid("extra-node-info", value, "expected sockets[:cores[:threads]]")
	}
	places := [...]struct {
		name  string
		field *uint32
	}{{"first arg of -B", &r.Spec.SocketsPerNode}, {"second arg of -B", &r.Spec.CoresPerSocket},
		{"third arg of -B", &r.Spec.ThreadsPerCore}}
	for i, part := range parts {
		if part == "*" {
			continue
		}
		low, _, _ := strings.Cut(part, "-")
		n, err := strconv.ParseUint(low, 10, 31)
		if err != nil || n == 0 {
			return &opt.ValueError{Lines: []string{fmt.Sprintf("Invalid numeric value \"%s\" for %s.", opt.Quoted(part), places[i].name)},
				Exit: 1,
				Hint: "expected a number from 1, or *"}
		}
		*places[i].field = uint32(n)
	}
	return nil
}

func setExclusive(r *Request, value string, given bool) error {
	if !given {
		r.Spec.Sharing = "exclusive"
		return nil
	}
	switch v := strings.ToLower(value); v {
	case "user", "mcs", "topo":
		r.Spec.Sharing = v
		return nil
	}
	return invalid("exclusive", value, "expected user, mcs or topo, or no value for the whole node")
}

func setOversubscribe(r *Request, _ string, _ bool) error {
	r.Spec.Sharing = "oversubscribe"
	return nil
}

// Arrays and dependencies are stored as written; only malformed ones are rejected here.

func setArray(r *Request, value string, _ bool) error {
	if value == "" {
		r.Spec.Array = ""
		return nil
	}
	if _, err := jobid.ParseArray(value); err != nil {
		return refusedAs(msg.CodeInvalidArray.Phrase(), "array", value, err)
	}
	r.Spec.Array = value
	return nil
}

func setDependency(r *Request, value string, _ bool) error {
	if _, err := jobid.ParseDependency(value); err != nil {
		return refusedAs(msg.CodeDependency.Phrase(), "dependency", value, err)
	}
	r.Spec.Dependency = value
	return nil
}

// refusedAs rejects a value with the phrase that the controller would use.
func refusedAs(phrase, option, value string, err error) error {
	return &opt.ValueError{Lines: []string{refusedJob + phrase}, Exit: 1,
		Hint: fmt.Sprintf("--%s=%s: %v", option, opt.Quoted(value), err)}
}
