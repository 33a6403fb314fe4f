package compat

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// These tests call the commands as well-known tools do, and read the answers as those tools read them. Each is named after its tool.

// tool is a tool's session with the cluster, in a folder of its own.
type tool struct {
	*session
	t *testing.T
}

func newTool(t *testing.T, files string) *tool {
	t.Helper()
	sys := sluice(t)
	s, err := parseScript(t.Name(), []byte(files))
	if err != nil {
		t.Fatal(err)
	}
	dir := scratch(t, s)
	p := &tool{t: t, session: &session{t: t, sys: sys, mask: &mask{names: map[string]string{}, dir: dir, data: sys.data, host: "-",
		cluster: sys.cluster}}}
	t.Cleanup(p.settle)
	return p
}

// must runs a command that has to succeed and to be silent on standard error.
func (p *tool) must(command string) string {
	p.t.Helper()
	stdout, stderr, exit := p.run("", command)
	if exit != 0 || stderr != "" {
		p.t.Fatalf("%q exits %d and says %q; it printed %q", command, exit, stderr, stdout)
	}
	return stdout
}

// submit gives the id that sbatch --parsable prints.
func (p *tool) submit(args string) string {
	p.t.Helper()
	id, _, _ := strings.Cut(strings.TrimSpace(p.must("sbatch --parsable "+args)), ";")
	if _, err := strconv.Atoi(id); err != nil {
		p.t.Fatalf("sbatch --parsable %s printed %q", args, id)
	}
	return id
}

func (p *tool) until(id string, states ...string) {
	p.t.Helper()
	p.waitJob(append([]string{id}, states...))
	if p.t.Failed() {
		p.t.FailNow()
	}
}

const scripts = `
-- job.sh --
#!/bin/sh
true
-- sleep.sh --
#!/bin/sh
exec sleep 1000
`

func TestOpenOnDemand(t *testing.T) {
	p := newTool(t, scripts)
	reply := strings.TrimSpace(p.must(
		`SBATCH_GET_USER_ENV=60L sbatch -D . -J ondemand/sys/dashboard -o out.log --export NONE -p gpu --gres=gpu:1 --parsable <sleep.sh`))
	id := strings.Split(reply, ";")[0] // lib/ood_core/job/adapters/slurm.rb splits there
	if !regexp.MustCompile(`^\d+$`).MatchString(id) {
		t.Fatalf("sbatch prints %q", reply)
	}
	p.until(id, "RUNNING")

	fields := strings.Fields(
		"Account JobID exit_code MinTmpDisk CpusPerTask MinMemory EndTime Dependency Feature ArrayJobID GroupName GroupID OverSubscribe " +
			"SCT JobArrayID Name Comment TimeLimit TimeLeft MinMemory TimeUsed ReqNodes NodeList Command Contiguous QOS Partition " +
			"PriorityLong Reason StartTime StateCompact UserName UserID Reservation SubmitTime WCKey Licenses ExcNodes CoreSpec Nice " +
			"SchedNodes SCT WorkDir tres-per-node")
	var asked []string
	known := fields[:0:0]
	for _, f := range fields {
		if f == "ExcNodes" || f == "CpusPerTask" { // not names of 22.05
			continue
		}
		known = append(known, f)
		asked = append(asked, f+":\x1f")
	}
	out := p.must("squeue --all --states=all --noconvert -O '" + strings.Join(asked, ",") + "' -j " + id)
	rows := strings.Split(strings.TrimSuffix(out, "\x1f\n"), "\x1f\n")
	if len(rows) != 2 {
		t.Fatalf("squeue -O has %d rows: %q", len(rows), out)
	}
	header, job := strings.Split(rows[0], "\x1f"), strings.Split(rows[1], "\x1f")
	if len(header) != len(known) || len(job) != len(known) {
		t.Fatalf("%d fields asked for; %d in the header, %d in the row: %q", len(known), len(header), len(job), out)
	}
	if job[1] != id {
		t.Errorf("the second field is %q, not the job's id %s", job[1], id)
	}
	if tres := job[len(job)-1]; !strings.HasPrefix(tres, "gres") || !strings.Contains(tres, "gpu:1") {
		t.Errorf("tres-per-node is %q", tres)
	}

	counts := strings.Split(strings.TrimSpace(p.must("sinfo -aho %F/%C")), "\n")
	if m := regexp.MustCompile(`^\d+/\d+/\d+/6/\d+/\d+/\d+/32$`); len(counts) != 1 || !m.MatchString(counts[0]) {
		t.Errorf("sinfo -aho %%F/%%C: %q", counts)
	}
	gpus, used := 0, 0
	for row := range strings.Lines(p.must("sinfo -ahNO nodehost:100,gres:512,gresused:512,statelong")) {
		if len(row) != 100+512+512+20+1 {
			t.Errorf("a row of %d bytes: %q", len(row), row)
			continue
		}
		gpus += gpuCount(row[100:612])
		used += gpuCount(row[612:1124])
	}
	if gpus != 4 || used != 1 {
		t.Errorf("%d GPUs, %d of them used", gpus, used)
	}
	nodes := strings.Split(p.must(`sinfo -ho "`+"\x1e%c\x1f%n\x1f%f"+`"`), "\x1e")[1:]
	seen := map[string]bool{}
	for _, n := range nodes {
		f := strings.Split(strings.TrimSpace(n), "\x1f")
		if len(f) != 3 {
			t.Fatalf("sinfo -ho: %q", n)
		}
		seen[f[1]] = true
	}
	if len(nodes) != 2 || len(seen) != 1 { // all nodes are this machine, of two kinds
		t.Errorf("sinfo -ho names %d hosts in %d rows: %q", len(seen), len(nodes), nodes)
	}
	parts := strings.Split(strings.TrimSpace(p.must("scontrol show part -o")), "\n")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "PartitionName=debug ") || value(parts[0], "AllowAccounts") != "ALL" ||
		value(parts[0], "AllowQos") != "ALL" || value(parts[0], "State") != "UP" {
		t.Errorf("scontrol show part -o: %q", parts)
	}
	for row := range strings.Lines(p.must("sacctmgr -nP show users withassoc format=account,qos where user=root cluster=$CLUSTER")) {
		if strings.Count(row, "|") != 1 {
			t.Errorf("sacctmgr: %q", row)
		}
	}
	sacct := p.must("sacct -P --delimiter '\x1f' -n --units G --allocations -j " + id +
		" -o JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode,Elapsed,ReqMem,Submit,Start,End,User,NodeList")
	if f := strings.Split(strings.TrimSuffix(sacct, "\n"), "\x1f"); len(f) != 14 || f[0] != id || f[1] != "ondemand/sys/dashboard" ||
		f[5] != "RUNNING" || f[12] != "root" {
		t.Errorf("sacct: %q", sacct)
	}
	p.must("scancel " + id)
	p.until(id, "CANCELLED")

	held := p.submit("-H job.sh")
	p.must("scontrol release " + held)
	p.until(held, "COMPLETED")
	for _, command := range []string{"scontrol hold 149999", "scontrol release 149999", "squeue -j 149999"} {
		if _, stderr, exit := p.run("", command); exit == 0 || !strings.Contains(stderr, "Invalid job id specified") {
			t.Errorf("%s exits %d and says %q", command, exit, stderr)
		}
	}
}

// gpuCount reads gpu:a100:2(IDX:0-1) as portals and exporters do: the number behind the last colon before a bracket.
func gpuCount(gres string) int {
	gres, _, _ = strings.Cut(strings.TrimSpace(gres), "(")
	if !strings.HasPrefix(gres, "gpu:") {
		return 0
	}
	n, _ := strconv.Atoi(gres[strings.LastIndexByte(gres, ':')+1:])
	return n
}

func TestSnakemake(t *testing.T) {
	p := newTool(t, scripts)
	const run = "6b5f0a52-7c0e-4a3f-9f0e-2f6a8f6f5b11"
	good := p.submit("--job-name=" + run + " --output=/dev/null job.sh")
	bad := p.submit("--job-name=" + run + " --output=/dev/null --wrap='exit 1'")
	p.until(good, "COMPLETED")
	p.until(bad, "FAILED")
	status := map[string]string{}
	for row := range strings.Lines(
		p.must("sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime now-2days --endtime now --name " +
			run)) {
		id, state, _ := strings.Cut(strings.TrimSpace(row), "|")
		status[id] = state
	}
	if status[good] != "COMPLETED" || status[bad] != "FAILED" || len(status) != 2 {
		t.Errorf("sacct: %v", status)
	}
	rows := strings.Fields(p.must("squeue --format='%i|%T' --states=all --noheader --name " + run))
	if len(rows) != 2 || !strings.Contains(strings.Join(rows, " "), good+"|COMPLETED") ||
		!strings.Contains(strings.Join(rows, " "), bad+"|FAILED") {
		t.Errorf("squeue: %q", rows)
	}
	running := p.submit("--job-name=" + run + " --output=/dev/null sleep.sh")
	p.until(running, "RUNNING")
	p.must("scancel --clusters=all " + running)
	p.until(running, "CANCELLED")
}

func TestNextflow(t *testing.T) {
	p := newTool(t, scripts)
	held := p.submit("-H job.sh")
	running := p.submit("-o /dev/null sleep.sh")
	p.until(running, "RUNNING")
	status := map[string]string{}
	for row := range strings.Lines(p.must("squeue --noheader -o '%i %t' -t all -u root")) {
		f := strings.Fields(row)
		if len(f) != 2 {
			t.Fatalf("squeue: %q", row)
		}
		status[f[0]] = f[1]
	}
	if status[held] != "PD" || status[running] != "R" {
		t.Errorf("squeue: %v", status)
	}
}

func TestLaunchScripts(t *testing.T) {
	p := newTool(t, scripts+`-- launch.sh --
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=1 -o out
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)
echo "head=$head nodes=$SLURM_NNODES tasks=$SLURM_NTASKS proc=$SLURM_PROCID local=$SLURM_LOCALID id=$SLURM_JOB_ID"
echo "all=$(scontrol show hostnames | paste -sd,)"
`)
	id := p.submit("launch.sh")
	p.until(id, "COMPLETED")
	out := p.must("cat out")
	if want := fmt.Sprintf("head=n1 nodes=2 tasks=2 proc=0 local=0 id=%s\nall=n1,n2\n", id); out != want {
		t.Errorf("the script printed %q, not %q", out, want)
	}
}

func TestExporters(t *testing.T) {
	p := newTool(t, scripts)
	id := p.submit("-p gpu --gres=gpu:a100:2 -n 3 -o /dev/null sleep.sh")
	array := p.submit("-H -a 1-3 job.sh")
	p.until(id, "RUNNING")

	used := 0
	for row := range strings.Lines(p.must(`sinfo -a -h --Format="Nodes: ,Gres: ,GresUsed:" --state=idle,allocated`)) {
		f := strings.Fields(row)
		if len(f) != 3 {
			t.Fatalf("sinfo --Format: %q", row)
		}
		n, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatalf("sinfo --Format: %q", row)
		}
		used += n * gpuCount(f[2])
	}
	if used != 2 {
		t.Errorf("sinfo counts %d GPUs in use", used)
	}
	tasks, gpus := 0, 0
	for row := range strings.Lines(p.must(`squeue -a -r -h -o "%A|%a|%T|%D|%C|%b"`)) {
		f := strings.Split(strings.TrimSuffix(row, "\n"), "|")
		if len(f) != 6 {
			t.Fatalf("squeue: %q", row)
		}
		if f[2] == "PENDING" {
			tasks++
		}
		if f[2] == "RUNNING" && strings.HasPrefix(f[5], "gres") {
			n, _ := strconv.Atoi(f[5][strings.LastIndexByte(f[5], ':')+1:])
			gpus += n
		}
	}
	if tasks != 3 || gpus != 2 {
		t.Errorf("squeue shows %d pending tasks of %s and %d GPUs", tasks, array, gpus)
	}
	states := map[string]int{}
	for row := range strings.Lines(p.must("sinfo -h -o %T,%D")) {
		state, count, _ := strings.Cut(strings.TrimSpace(row), ",")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("sinfo -h -o %%T,%%D: %q", row)
		}
		states[state] += n
	}
	if states["idle"]+states["mixed"] != 6 || states["mixed"] != 1 {
		t.Errorf("sinfo: %v", states)
	}
	if cpus := strings.TrimSpace(p.must("sinfo -h -o %C")); cpus != "3/29/0/32" {
		t.Errorf("sinfo -h -o %%C: %q", cpus)
	}
	diag := p.must("sdiag")
	for _, line := range []string{`Server thread count:\s+\d+`, `Agent queue size:\s+\d+`, `DBD Agent queue size:\s+\d+`,
		`\tLast cycle:\s+\d+`, `\tMean cycle:\s+\d+`, `\tCycles per minute:\s+\d+`,
		`\tTotal backfilled jobs \(since last slurm start\): \d+`, `\tDepth Mean:\s+\d+`, `Jobs submitted:\s+\d+`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(diag) {
			t.Errorf("sdiag has no line %s", line)
		}
	}
	if _, after, ok := strings.Cut(diag, "Backfilling stats"); !ok || !strings.Contains(after, "Last cycle:") {
		t.Errorf("sdiag: no cycles behind \"Backfilling stats\"")
	}
}

func TestSkyPilotAndDstack(t *testing.T) {
	p := newTool(t, scripts)
	id := p.submit("-J sky-job -o /dev/null sleep.sh")
	p.until(id, "RUNNING")
	rows := 0
	for row := range strings.Lines(p.must(`sinfo -h --Node -o "%N\x1f%t\x1f%G\x1f%c\x1f%m\x1f%P"`)) {
		// The tool writes a backslash and x1f, which Slurm prints as they are, and cuts the rows there.
		f := strings.Split(strings.TrimSuffix(row, "\n"), `\x1f`)
		if len(f) != 6 {
			t.Fatalf("sinfo --Node: %q", row)
		}
		if f[0] == "g1" && (f[2] != "gpu:a100:2" || f[3] != "8" || f[4] != "8000" || f[5] != "gpu") {
			t.Errorf("sinfo --Node: %q", f)
		}
		rows++
	}
	if rows != 10 {
		t.Errorf("sinfo --Node has %d rows", rows)
	}
	if out := strings.TrimSpace(p.must("squeue --only-job-state -h -o %T -j " + id)); out != "RUNNING" {
		t.Errorf("squeue --only-job-state: %q", out)
	}
	if out := p.must("scontrol ping"); !regexp.MustCompile(`^Slurmctld\(primary\) at \S+ is UP\n$`).MatchString(out) {
		t.Errorf("scontrol ping: %q", out)
	}
	for row := range strings.Lines(p.must("scontrol show -o node")) {
		for _, key := range []string{"NodeName", "CPUTot", "RealMemory", "Gres", "Partitions", "NodeAddr", "NodeHostName", "Arch"} {
			if value(row, key) == "" {
				t.Errorf("scontrol show -o node has no %s: %q", key, row)
			}
		}
	}
	p.must("scancel --name sky-job --signal TERM --full")
	p.until(id, "CANCELLED", "FAILED")
}
