package scontrol

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// Commands about the jobs of this host, which need no daemon: the node daemon gives each attempt a cgroup whose name identifies it,
// …/CLUSTER/NODE/job_ID.ATTEMPT, and the kernel knows the cgroup of each process.

// localProcess is one process of a job on this host.
type localProcess struct {
	pid, parent int
	job         uint32
	step        string
	node        string
	cluster     string
}

// isOf reports whether a process belongs to a cluster; "" matches any.
func (p localProcess) isOf(cluster string) bool {
	return cluster == "" || p.cluster == "" || p.cluster == cluster
}

// localProcesses returns the processes of a cluster's jobs, by job and pid. A host may be in several clusters.
func localProcesses(proc, cluster string) []localProcess {
	dirs, _ := os.ReadDir(proc)
	var list []localProcess
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, d.Name(), "cgroup"))
		if err != nil {
			continue // it has ended
		}
		if p, ok := jobOfCgroups(string(text)); ok && p.isOf(cluster) {
			p.pid, p.parent = pid, parentOf(filepath.Join(proc, d.Name(), "stat"))
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b localProcess) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.pid, b.pid)) })
	return list
}

// jobOfCgroups reads /proc/PID/cgroup. In hierarchies without a cgroup for the step, a process of a step is in that of its
// allocation.
func jobOfCgroups(text string) (p localProcess, ok bool) {
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.Split(line, "/")
		for i := 2; i < len(parts); i++ {
			found, isJob := jobOfGroup(parts[i])
			if !isJob {
				continue
			}
			found.node, found.cluster = parts[i-1], parts[i-2]
			if i+1 < len(parts) {
				if step, has := strings.CutPrefix(parts[i+1], "step_"); has {
					found.step = stepOfGroup(step)
				}
			}
			if !ok || found.job == p.job && found.step != "batch" {
				p, ok = found, true
			}
			break
		}
	}
	return p, ok
}

// jobOfGroup parses the name of a cgroup: "job_12.1", or "job_12.1.step_0" if that of a step is beside that of its allocation.
func jobOfGroup(name string) (p localProcess, ok bool) {
	id, isJob := strings.CutPrefix(name, "job_")
	id, step, isStep := strings.Cut(id, ".step_")
	number, _, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	p = localProcess{job: uint32(n), step: "batch"}
	if isStep {
		p.step = stepOfGroup(step)
	}
	return p, isJob && err == nil && n != 0
}

// stepOfGroup is the name of a step, from the number in the name of its cgroup.
func stepOfGroup(number string) string {
	if n, err := strconv.ParseUint(number, 10, 32); err == nil {
		return jobid.StepName(uint32(n))
	}
	return number
}

// taskOf returns the task number of a process, within its node and within its step, from its environment; "0", "0" for a batch
// script, and if the environment is not readable.
func taskOf(proc string, p localProcess) (local, global string) {
	local, global = "0", "0"
	text, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(p.pid), "environ"))
	for word := range strings.SplitSeq(string(text), "\x00") {
		if v, ok := strings.CutPrefix(word, "SLURM_LOCALID="); ok {
			local = v
		}
		if v, ok := strings.CutPrefix(word, "SLURM_PROCID="); ok {
			global = v
		}
	}
	return local, global
}

// parentOf reads the parent's pid from /proc/PID/stat; it searches for the last parenthesis, because the name may contain anything.
func parentOf(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), ") ")
	if f := strings.Fields(rest); len(f) > 1 {
		n, _ := strconv.Atoi(f[1])
		return n
	}
	return 0
}

// procPath is /proc, except in tests.
var procPath = "/proc"

// listPids is scontrol listpids [JOB[.STEP]] [NODE].
func (c *control) listPids(args []string) int {
	fmt.Fprintf(c.env.Stdout, "%-8s %-8s %-8s %-7s %-8s\n", "PID", "JOBID", "STEPID", "LOCALID", "GLOBALID")
	all := localProcesses(procPath, c.env.ClusterName())
	chosen, code := c.chooseLocal(all, args)
	if code != 0 {
		return code
	}
	inside := map[int]bool{}
	for _, p := range all {
		inside[p.pid] = true
	}
	for _, p := range chosen {
		local, global := "-", "-"
		if !inside[p.parent] {
			local, global = taskOf(procPath, p)
		}
		fmt.Fprintf(c.env.Stdout, "%-8d %-8d %-8s %-7s %-8s\n", p.pid, p.job, p.step, format.Escape(local), format.Escape(global))
	}
	return 0
}

// chooseLocal selects the processes of a job, a step or a node.
func (c *control) chooseLocal(all []localProcess, args []string) ([]localProcess, int) {
	node := ""
	if len(args) > 1 {
		node = args[1]
	}
	list := slices.DeleteFunc(slices.Clone(all), func(p localProcess) bool { return node != "" && p.node != node })
	if len(args) == 0 || args[0] == "*" {
		if len(list) == 0 {
			return nil, c.fail("No job steps exist on this node.")
		}
		return list, 0
	}
	id, err := jobid.Parse(args[0])
	if err != nil || id.Job == 0 {
		return nil, c.fail("Invalid job id specified")
	}
	list = slices.DeleteFunc(list, func(p localProcess) bool { return p.job != id.Job })
	if len(list) == 0 {
		return nil, c.fail(fmt.Sprintf("JobId=%d does not exist on node %s.", id.Job, cmp.Or(node, command.ShortHostname())))
	}
	if _, step, has := strings.Cut(args[0], "."); has {
		if list = slices.DeleteFunc(list, func(p localProcess) bool { return p.step != step }); len(list) == 0 {
			return nil, c.fail(fmt.Sprintf("StepId=%s does not exist on node %s.", args[0], cmp.Or(node, command.ShortHostname())))
		}
	}
	return list, 0
}

// listJobsHere and listSteps list what runs on this host (scontrol(1), since 23.11).
func (c *control) listJobsHere([]string) int { return c.listLocal("JOBID", false) }
func (c *control) listSteps([]string) int    { return c.listLocal("JOBID    STEPID", true) }

func (c *control) listLocal(header string, steps bool) int {
	type key struct {
		job  uint32
		step string
	}
	seen := map[key]bool{}
	var lines []string
	for _, p := range localProcesses(procPath, c.env.ClusterName()) {
		k := key{p.job, ""}
		line := fmt.Sprint(p.job)
		if steps {
			k.step = p.step
			line = fmt.Sprintf("%-8d %s", p.job, p.step)
		}
		if !seen[k] {
			seen[k] = true
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		what := "jobs"
		if steps {
			what = "job steps"
		}
		return c.fail("No " + what + " exist on this node.")
	}
	fmt.Fprintln(c.env.Stdout, header)
	for _, l := range lines {
		fmt.Fprintln(c.env.Stdout, l)
	}
	return 0
}

// pidInfo is scontrol pidinfo PID: the job of a process on this host, and its remaining time.
func (c *control) pidInfo(args []string) int {
	pid, _ := strconv.Atoi(args[0])
	text, err := os.ReadFile(filepath.Join(procPath, strconv.Itoa(pid), "cgroup"))
	p, ok := jobOfCgroups(string(text))
	if err != nil || !ok || !p.isOf(c.env.ClusterName()) {
		return c.fail("Failed to locate job for requested pid")
	}
	jobs, err := c.listJobs(&msg.JobsRequest{Ids: []string{fmt.Sprint(p.job)}, AllStates: true})
	switch {
	case err != nil:
		return c.callFailed("slurm_get_end_time error", err)
	case len(jobs) == 0:
		return c.fail("slurm_get_end_time error: Invalid job id specified")
	}
	j := jobs[0]
	if j.GetTimeLimitS() == msg.Unlimited {
		fmt.Fprintf(c.env.Stdout, "Slurm JobId=%d has no time limit\n", p.job)
		return 0
	}
	end := time.Unix(0, j.GetStartNs()).Add(time.Duration(j.GetTimeLimitS()) * time.Second)
	fmt.Fprintf(c.env.Stdout, "Slurm JobId=%d ends at %s\nJob remaining time is %d seconds\n", p.job,
		end.Format("Mon Jan _2 15:04:05 2006"), max(int64(end.Sub(c.env.Now())/time.Second), 0))
	return 0
}
