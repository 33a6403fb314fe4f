package scontrol

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// slurmd shows the node daemon of this host, in the format of Slurm's. If several run here, SLURMD_NODENAME selects one. The data
// come from the controller, to which the daemon reports.
func (s *show) slurmd(string) int {
	c, code := s.dial("slurm_load_node")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	n, hint := s.localNode(c)
	if n == nil {
		return s.complain("scontrol: error: slurm_slurmd_info: Connection refused\nslurm_load_slurmd_status: Connection refused\n" + hint)
	}
	values := map[string]string{}
	if reply, err := c.Config(s.ctx, &msg.ConfigRequest{}); err == nil {
		for _, kv := range reply.GetPairs() {
			values[kv.GetKey()] = kv.GetValue()
		}
	}
	fc := view.Context(s.env, 0)
	hw := n.GetReported()
	var b []byte
	line := func(key, value string) { b = fmt.Appendf(b, "%-24s = %s\n", key, format.Escape(value)) }
	count := func(key string, n uint64, unit string) { line(key, strconv.FormatUint(n, 10)+unit) }
	line("Active Steps", cmp.Or(strings.Join(activeSteps(localProcesses(procPath, s.env.ClusterName()), n.GetName()), ", "), "NONE"))
	count("Actual CPUs", uint64(hw.GetCpus()), "")
	count("Actual Boards", uint64(n.GetBoards()), "")
	count("Actual sockets", uint64(hw.GetSockets()), "")
	count("Actual cores", uint64(hw.GetCores()), "")
	count("Actual threads per core", uint64(hw.GetThreads()), "")
	count("Actual real memory", hw.GetRealMemoryMib(), " MB")
	count("Actual temp disk space", hw.GetTmpDiskMib(), " MB")
	line("Boot time", string(fc.AppendTime(nil, n.GetNodedStartNs(), "Unknown")))
	line("Hostname", n.GetName())
	line("Last slurmctld msg time", string(fc.AppendTime(nil, n.GetLastSeenNs(), "NONE")))
	if pid := daemonOf(procPath, n.GetName(), n.GetNodedStartNs()); pid != 0 {
		count("Slurmd PID", uint64(pid), "")
	}
	line("Slurmd Debug", debugLevel(values["SlurmdDebug"]))
	if log := values["SlurmdLogFile"]; log != "" && log != "(null)" {
		line("Slurmd Logfile", strings.NewReplacer("%n", n.GetName(), "%h", n.GetHostname()).Replace(log))
	}
	line("Version", n.GetVersion())
	return s.out(b)
}

// localNode returns the node of this host whose daemon reports, or why it cannot be determined.
func (s *show) localNode(c *client.Client) (node *msg.NodeRecord, hint string) {
	var here []string
	name := s.env.Getenv("SLURMD_NODENAME")
	err := view.EachNode(s.ctx, c, &msg.NodesRequest{}, &format.Context{}, func(n *msg.NodeRecord) {
		if name == "" && sameHost(n.GetHostname()) || name == n.GetName() {
			here = append(here, n.GetName())
			node = n
		}
	})
	switch {
	case err != nil:
		return nil, client.Text(err)
	case len(here) == 0 && name != "":
		return nil, "there is no node " + format.Escape(name) + ", which SLURMD_NODENAME names"
	case len(here) == 0:
		return nil, "this host is not a node of the cluster"
	case len(here) > 1:
		return nil, "this host runs several nodes: set SLURMD_NODENAME to one of " + format.Escape(strings.Join(here, ", "))
	case format.NoRespond(node) || node.GetNodedStartNs() == 0:
		return nil, "the daemon of node " + format.Escape(here[0]) + " does not report"
	}
	return node, ""
}

// activeSteps returns the jobs that run on a node of this host.
func activeSteps(list []localProcess, node string) (jobs []string) {
	for _, p := range list {
		if id := strconv.FormatUint(uint64(p.job), 10); p.node == node && !slices.Contains(jobs, id) {
			jobs = append(jobs, id)
		}
	}
	return jobs
}

// daemonOf returns the process id of a node's daemon, identified by its reported start time; 0 if unknown. A host may have nodes
// with the same name in several clusters.
func daemonOf(proc, node string, startNS int64) (found int) {
	const slackS = 3 // the kernel has whole seconds, and a daemon reads the clock a while after its process began
	dirs, _ := os.ReadDir(proc)
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(proc, d.Name(), "cmdline"))
		args := strings.Split(string(text), "\x00")
		at := slices.Index(args, "--node")
		if filepath.Base(args[0]) != "sluice-noded" || at < 0 || at+1 == len(args) || args[at+1] != node {
			continue
		}
		if ago := startNS/1e9 - processStartS(proc, d.Name()); ago < -slackS || ago > slackS {
			continue
		}
		if found != 0 {
			return 0
		}
		found = pid
	}
	return found
}

// processStartS is the start time of a process, in seconds of the wall clock.
func processStartS(proc, pid string) int64 {
	const ticks = 100    // per second, as seen by user space
	const startTime = 19 // index after the name: field 22 of proc_pid_stat(5)
	stat, _ := os.ReadFile(filepath.Join(proc, pid, "stat"))
	boot, _ := os.ReadFile(filepath.Join(proc, "stat"))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	_, rest, ok := strings.Cut(string(boot), "\nbtime ")
	if !ok || len(fields) <= startTime {
		return 0
	}
	line, _, _ := strings.Cut(rest, "\n")
	bootS, _ := strconv.ParseInt(line, 10, 64)
	since, _ := strconv.ParseInt(fields[startTime], 10, 64)
	return bootS + since/ticks
}

// debugLevel is the number of a log level.
func debugLevel(name string) string {
	if at := slices.Index([]string{"quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"},
		strings.ToLower(name)); at >= 0 {
		return strconv.Itoa(at)
	}
	return cmp.Or(name, "3")
}
