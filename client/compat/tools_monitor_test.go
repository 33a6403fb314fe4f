package compat

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// monitorTools are exporters, accounting harvesters, health checks and what administrators look with.
var monitorTools = []contract{
	{"ClusterShell", []call{
		{run: `sinfo -h -o "%N" -p debug`, lines: `n\[1-4\]`, n: 1},
		{run: `sinfo -h -o "%R"`, lines: `debug|long|gpu`, n: 3},
		{run: `sinfo -h -N -o "%R" -n n1`, lines: `debug|long`, n: 2},
		{run: `sinfo -h -o "%N" -t idle`, lines: `[a-z\d\[\],-]+`},
		{run: `sinfo -h -N -o "%T" -n n1 | tr -d '*~#!%$@+^-'`, lines: `[a-z]+`},
		{run: `squeue -h -j $MULTI -o "%N"`, lines: `n\[?[\d,-]+\]?(,n\d)?`},
		{run: `squeue -h -w g1,g2 -o "%i"`, lines: `<GPU>`, n: 1},
		{run: `scontrol create reservation=cs nodes=n3,n4 users=root start=now+1days duration=10 >/dev/null; scontrol -o show reservation cs | grep -Po 'Nodes=\K[^ ]+'`, lines: `n\[3-4\]`},
		{run: `scontrol -o show reservation | grep -Po 'ReservationName=\K[^ ]+'; scontrol delete reservationname=cs`, lines: "cs"},
	}},
	{"jobstats", []call{
		{run: "SLURM_TIME_FORMAT=%s sacct -P -X -o " +
			"jobidraw,start,end,cluster,alloctres,admincomment,user,account,state,nnodes,ncpus,reqmem,qos,partition,timelimitraw,jobname -j $GPU", n: 2,
			has: []string{`\AJobIDRaw\|Start\|End\|Cluster\|AllocTRES\|AdminComment\|User\|Account\|State\|NNodes\|NCPUS\|ReqMem\|QOS\|Partition\|TimelimitRaw\|JobName$`,
				`^<GPU>\|\d+\|Unknown\|<CLUSTER>\|[^|]*\bgres/gpu=1\b[^|]*\|\|root\|root\|RUNNING\|1\|2\|200M\|normal\|gpu\|30\|gpu$`}},
		{run: "SLURM_TIME_FORMAT=%s sacct -P -X -o jobidraw,start,end,state -j $HELD -M $CLUSTER",
			has: []string{`^<HELD>\|Unknown\|Unknown\|PENDING$`}},
		{run: "seff $DONE", has: []string{`^Job ID: <DONE>$`, `^State: COMPLETED \(exit code 0\)$`}},
	}},
	{"LBNL NHC", []call{ // helpers/node-mark-offline and -online
		{run: "sinfo -o '%t %E' -hn n4", lines: `idle none`, n: 1, until: true},
		{run: `scontrol update State=DRAIN NodeName=n4 Reason="NHC: check_fs_mount:  /x not mounted"`},
		{run: "sinfo -o '%t %E' -hn n4", lines: `drain NHC: check_fs_mount:  /x not mounted`, n: 1, until: true},
		{run: "scontrol show node n4", has: []string{`\bState=IDLE\+DRAIN\b`}},
		{run: "scontrol update State=RESUME NodeName=n4"},
		{run: "sinfo -o '%t %E' -hn n4", lines: `(idle|alloc|mix)\*? none`, n: 1},
	}},
	{"Open XDMoD", []call{
		{run: "TZ=UTC sacct --allusers --parsable2 --noheader --allocations --duplicates --clusters $CLUSTER --format " +
			"jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname --starttime 1970-01-02T00:00:00 --endtime $(date -u +%Y-%m-%dT%H:%M:%S)",
			lines: `([^|]*\|){25}.*`, has: []string{
				`^<DONE>\|<DONE>\|<CLUSTER>\|debug\|normal\|root\|root\|0\|root\|0(\|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d){4}\|\d\d:\d\d:\d\d\|0:0\|COMPLETED\|1\|1\|1\|100M\|[^|]*\|[^|]*\bcpu=1\b[^|]*\|00:30:00\|n\d\|done$`,
				`^<GPU>\|.*\|Unknown\|.*\|RUNNING\|.*\bgres/gpu=1\b.*\|g\d\|gpu$`}},
	}},
	{"pestat", []call{
		{run: `SQUEUE_FORMAT="" SLURM_TIME_FORMAT="" sinfo -h -N -o "%N %P %C %O %m %e %t %Z %G"`, n: 10,
			lines: `\S+ \S+ \d+/\d+/\d+/\d+ (\d+\.\d+|N/A) \d+ (\d+|N/A) \S+ 1 \S+`},
		{run: `SQUEUE_FORMAT="" SLURM_TIME_FORMAT="" squeue -t RUNNING -h -o "%T %A %u %g %N %S %e %j %b"`,
			lines: `RUNNING \d+ root root \S+ \d{4}-\S+ \d{4}-\S+ \S+ \S+`},
		{run: "sacctmgr -p -n show assoc where users=root", has: []string{"root"}},
		{run: "sacctmgr -n -p show account root", has: []string{"root"}},
		{run: "sacctmgr -n -p show qos normal", has: []string{"normal"}},
		{run: "scontrol show hostnames n[1-2],g1", lines: `n1|n2|g1`, n: 3},
	}},
	{"reportseff", []call{
		{run: "sacct --helpformat", has: []string{`\bJobID\b`, `\bAdminComment\b`, `\bTRESUsageOutAve\b`, `\bTimelimit\b`}},
		{run: "sacct -P -n '--delimiter=^|^' " +
			"--format=JobID,State,Elapsed,Timelimit,TotalCPU,AllocCPUS,REQMEM,NNodes,MaxRSS,AdminComment,TRESUsageOutAve " +
			"--jobs=$DONE,$CANC,$RUN", lines: `(.*?\^\|\^){10}.*`,
			has: []string{`^<DONE>\^\|\^COMPLETED\^\|\^\d\d:\d\d:\d\d\^\|\^00:30:00\^\|\^(\d\d:)?\d\d:\d\d(\.\d{3})?\^\|\^1\^\|\^100M\^\|\^1\^\|\^`}},
		{run: "sacct -P -n '--delimiter=^|^' --format=JobID,State --user=root --starttime=$(date -d '7 days ago' +%m%d%y)",
			has: []string{`^<DONE>\^\|\^COMPLETED$`}},
		{run: "scontrol show partition", has: []string{`^PartitionName=(\S+)$`, `\bMaxTime=(\S+)`}},
	}},
	{"Prometheus exporter of Rivos", []call{ // its fallback, which reads each line as JSON and each node's columns at |
		{run: `squeue --states=all -h -r -o '{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, "mem": "%m", "array_id": "%K", "r": "%R"}'`, read: jsonLines,
			has: []string{`"id": <RUN>, "end_time": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "u": "root", "state": "RUNNING", "p": "debug", "cpu": 1, "mem": "100M", "array_id": "N/A", "r": "n\d"`, `"id": <HELD>, "end_time": "N/A"`}},
		{run: `sinfo -h -O "StateCompact:15|,Memory:20|,NodeHost:40|,CPUsLoad:15|,Partition:20|,FreeMem:20|,CPUsState:20|,Weight:15|,AllocMem:20|,Gres:30|,GresUsed:40|"`,
			lines: `[a-z~*-]+ *\|\d+ *\|\S+ *\|(\d+\.\d+(-\d+\.\d+)?|N/A) *\|\S+ *\|(\d+(-\d+)?|N/A) *\|\d+/\d+/\d+/\d+ *\|\d+ *\|\d+ *\|\S+ *\|\S+ *\|`},
		{run: "squeue --json", read: document((*slurmJobs).wrong)},
		{run: "scontrol show lic --json", has: []string{`"LicenseName": "fluent"`, `"Total": 10`}},
		{run: "sacctmgr show assoc format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit --noheader --parsable2", lines: `([^|]*\|){5}[^|]*`,
			has: []string{`^root\|root\|\|\|\|$`}},
	}},
	{"Prometheus exporter of Penso", []call{ // the two "Last cycle" are told apart by their order
		{run: "sdiag", has: []string{`^Server thread count:\s+\d+$`, `^Agent queue size:\s+\d+$`, `^DBD Agent queue size:\s+\d+$`,
			`^[\s]+Last cycle:\s+\d+$`, `^[\s]+Mean cycle:\s+\d+$`, `^[\s]+Cycles per minute:\s+\d+$`,
			`^[\s]+Depth Mean:\s+\d+$`, `^[\s]+Total backfilled jobs \(since last slurm start\): \d+$`,
			`^[\s]+Total backfilled jobs \(since last stats cycle start\): \d+$`,
			`^[\s]+Total backfilled heterogeneous job components: \d+$`, `(?s)Main schedule.*Last cycle:.*Backfilling stats.*Last cycle:`}},
		{run: `sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong`, n: 10, lines: `\S+ +\d+ +\d+ +\d+/\d+/\d+/\d+ +\S+ *`},
		{run: `squeue -a -r -h -o "%P,%T,%C,%r,%u"`, lines: `[^,]+,[A-Z_]+,\d+,.*,root`},
		{run: `sinfo -h -o "%R,%C"`, lines: `\S+,\d+/\d+/\d+/\d+`},
	}},
	{"Prometheus exporter of SckyzO", []call{ // reads gpu:TYPE:COUNT(IDX:…), with nothing else in the word
		{run: `sinfo -a -h "--Format=Nodes: ,StateLong: ,Gres: ,GresUsed:"`, lines: `\d+ \S+ \S+ \S+`,
			has: []string{`^1 mixed gpu:a100:2 gpu:a100:1\(IDX:\d\)$`, `^1 (idle|planned) gpu:a100:2 gpu:a100:0\(IDX:N/A\)$`}},
	}},
	{"slurm_gpustat", []call{
		{run: "sinfo -o '%1000N|%1000G' --noheader", n: 2, lines: `.{1000}\|.{1000}`, has: []string{`^g\[1-2\] +\|gpu:a100:2 +$`}},
		{run: "sinfo -V", lines: `slurm \d\S+`, n: 1},
		{run: "squeue -O tres-per-node:100,nodelist:100,username:100,jobid:100 --noheader -j $GPU",
			lines: `gres[:/]gpu:a100:1 +g\d +root +<GPU> +`},
		{run: "scontrol show jobid -dd $GPU", has: []string{`^\s*Command=\S+$`, `^\s*JOB_GRES=gpu:a100:1$`}},
		{run: "scontrol show node g1", has: []string{`^\s*CfgTRES=cpu=8,mem=8000M,billing=8,gres/gpu=2$`, `^\s*AllocTRES=(\S+=\S+)?$`}},
	}},
}

// jsonLines takes each line for a document.
func jsonLines(out string) string {
	for line := range strings.Lines(out) {
		if !json.Valid([]byte(line)) {
			return "no JSON: " + line
		}
	}
	return ""
}

// inJobTools read the variables of a job, or call Slurm from within. "has" is looked for in what the job of that script prints.
var inJobTools = []contract{
	// outside of srun it sees no step
	{"JAX", []call{{run: "-n 2", file: "echo $SLURM_JOB_ID $SLURM_NTASKS $SLURM_PROCID $SLURM_LOCALID ${SLURM_STEP_NODELIST-none}",
		lines: `\d+ 2 0 0 none`}}},
	{"Lightning", []call{
		{run: "-N 2 --ntasks-per-node=1 -J train",
			file:  "echo $SLURM_JOB_NAME $SLURM_NODELIST $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID",
			lines: `train [a-z]+\[?\d.* 2 1 0 0 0`},
		{run: "-J alone", file: "echo ${SLURM_NTASKS-none}", lines: "none"}, // the variable alone means "started by srun"
	}},
	{"MPICH and Intel MPI (Hydra)",
		[]call{{run: "-N 2 -n 3", file: "echo $SLURM_NNODES $SLURM_TASKS_PER_NODE $SLURM_NODELIST",
			lines: `2 \d+(\(x\d+\))?(,\d+(\(x\d+\))?)* n.*`}}},
	{"Open MPI (PRRTE)", []call{
		{run: "-N 2 --ntasks-per-node=2 -c 2",
			file:  "echo $SLURM_JOBID $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE $SLURM_CPUS_PER_TASK",
			lines: `\d+ n\S+ 2\(x2\) 4\(x2\) 2`},
	}},
	{"TensorFlow SlurmClusterResolver",
		[]call{{run: "-N 2 --ntasks-per-node=1", file: "echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NTASKS_PER_NODE; scontrol show hostname",
			lines: `0 2 1|n\d`, n: 3}}},
}

// TestToolsInJobs runs one job for each call and reads what it prints.
func TestToolsInJobs(t *testing.T) {
	p := newTool(t, scripts)
	ids := map[string][]string{}
	for _, c := range inJobTools {
		for _, call := range c.calls {
			ids[c.tool] = append(ids[c.tool], p.submit("-o out-%j.txt "+call.run+" --wrap '"+call.file+"'"))
		}
	}
	for _, c := range inJobTools {
		for i, call := range c.calls {
			id := ids[c.tool][i]
			p.until(id, "COMPLETED")
			out := p.must("cat out-" + id + ".txt")
			list := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			for _, l := range list {
				if !regexp.MustCompile(`^(?:` + call.lines + `)$`).MatchString(l) {
					t.Errorf("%s: sbatch %s prints %q, not %s", c.tool, call.run, l, call.lines)
				}
			}
			if call.n > 0 && len(list) != call.n {
				t.Errorf("%s: sbatch %s prints %d lines, not %d: %q", c.tool, call.run, len(list), call.n, out)
			}
		}
	}
}

// TestRequeueFromWithin: Lightning and submitit answer the signal before the end of a job by requeueing it.
func TestRequeueFromWithin(t *testing.T) {
	p := newTool(t, scripts+`-- train.sh --
#!/bin/bash
#SBATCH -o train.txt --open-mode=append --requeue
echo "start ${SLURM_RESTART_COUNT:-0}"
trap 'scontrol requeue $SLURM_JOB_ID; echo "requeued: $?"' USR1
touch ready
while :; do sleep 0.1; done
`)
	id := p.submit("train.sh")
	p.waitFor("ready", "ls")
	p.must("scancel --batch --signal=USR1 " + id) // what --signal=B:USR1@90 sends
	p.waitFor("JobState=PENDING.* Restarts=1 ", "scontrol -o show job "+id)
	if out := p.must("cat train.txt"); !strings.HasPrefix(out, "start 0\n") {
		t.Errorf("the job printed %q", out)
	}
}
