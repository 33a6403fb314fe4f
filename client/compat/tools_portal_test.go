package compat

// portalTools are portals, terminal programs and services that act for users.
var portalTools = []contract{
	{"batchspawner", []call{
		{run: "sbatch --parsable job",
			file: "#!/bin/bash\n#SBATCH --output=./jupyterhub_slurmspawner_%j.log\n#SBATCH --job-name=spawner-jupyterhub\n#SBATCH " +
				"--chdir=.\n#SBATCH --export=PATH,LANG\n#SBATCH --get-user-env=L\n#SBATCH --mem=90\ntrue\n", lines: `\d+(;\S+)?`},
		{run: "squeue -h -j $RUN -o '%T %B'", lines: `(?:RUNNING|COMPLETING)\s+((?:[\w_-]+\.?)+)`},
		{run: "squeue -h -j $HELD -o '%T %B'", lines: `(?:PENDING|CONFIGURING) n/a`},
	}},
	{"Galaxy", []call{
		{run: "squeue -a -o '%A %t'", lines: `\S+ \S+`, has: []string{`\AJOBID ST$`, `^<RUN> R$`}},
		{run: "squeue -a -o '%A %t' -j $RUN", n: 2, lines: `JOBID ST|<RUN> R`},
		{run: "sacct -o JobIDRaw,State -P -n -j $FAILED", has: []string{`^<FAILED>\|FAILED$`, `^<FAILED>\.batch\|FAILED$`}},
		{run: "sacct -n -o state%-32 -M $CLUSTER -j $CANC", lines: `CANCELLED by 0 +`},
		{run: "scontrol -o show job $DONE", read: keyed, has: []string{` JobState=COMPLETED `}},
		{run: "scontrol -o show job 149999", exit: 1, errs: noJobError}, // compared to the byte: then sacct is asked
	}},
	{"SlurmCommander", []call{
		{run: "squeue -a --json", read: document((*slurmJobs).wrong)},
		{run: "sacct --json -S now-7days -A root", read: document((*slurmJobs).some)},
	}},
	{"slurmformspawner", []call{
		{run: "scontrol -o show node", n: 6, lines: `.*\bCPUTot=\d+ .*\bGres=\S+ .*\bRealMemory=\d+ .*`},
		{run: "sacctmgr show user root withassoc format=account -P --noheader", lines: "root"},
		{run: "scontrol show res -o --quiet"}, // nothing at all where there is none
		{run: "scontrol create reservation=form nodes=n4 users=root start=now+1days duration=10 >/dev/null; scontrol show res -o --quiet",
			n: 1, read: keyed,
			lines: `.* StartTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d EndTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d .* Users=root .*Accounts=\S+ .*`},
		{run: "scontrol delete reservationname=form"},
	}},
	{"slurm-mail", []call{
		{run: "sacct -j $DONE -P -n " +
			"--fields=JobId,User,Group,Partition,Start,End,State,ReqMem,MaxRSS,NCPUS,CPUTimeRaw,TotalCPU,NNodes,WorkDir,Elapsed,ExitCode,AdminComment,Comment,Cluster,NodeList,TimeLimit,TimelimitRaw,JobIdRaw,JobName",
			n: 2, lines: `([^|]*\|){23}[^|]*`,
			has: []string{`^<DONE>\|root\|root\|debug\|[\dT:-]{19}\|[\dT:-]{19}\|COMPLETED\|100M\|\|1\|\d+\|.*\|00:30:00\|30\|<DONE>\|done$`}},
		{run: "scontrol -o show job=$DONE", has: []string{` StdErr=/dev/null `, ` StdOut=/dev/null `}},
	}},
	{"turm", []call{
		{run: `squeue --array --noheader --Format "jobid:###turm###,name:###turm###,state:###turm###,username:###turm###,timeused:###turm###,tres-alloc:###turm###,partition:###turm###,nodelist:###turm###,` +
			`stdout:###turm###,stderr:###turm###,command:###turm###,statecompact:###turm###,reason:###turm###,ArrayJobID:###turm###,ArrayTaskID:###turm###,NodeList:###turm###,WorkDir:###turm###"`,
			lines: `(.*?###turm###){17}`, has: []string{
				// which it fills in by itself
				`^<RUN>###turm###run###turm###RUNNING###turm###root###turm###[\d:]+###turm###cpu=1,mem=100M,node=1,billing=1###turm###debug###turm###n\d###turm###\S+/out-%j\.txt###turm###`,
				`###turm###<ARR>###turm###2###turm###`, `^<HELD>###turm###.*###turm###N/A###turm###`}},
	}},
}

// slurmJobs is what the program declares of squeue --json and sacct --json.
type slurmJobs struct {
	Jobs []struct {
		JobID int64  `json:"job_id"`
		Name  string `json:"name"`
		User  string `json:"user_name"`
	} `json:"jobs"`
}

func (d *slurmJobs) wrong() string {
	names := map[string]bool{}
	for _, j := range d.Jobs {
		names[j.Name] = j.JobID > 0 && j.User == "root"
	}
	if !names["run"] || !names["held"] {
		return "the jobs \"run\" and \"held\" of root are missing"
	}
	return ""
}

func (d *slurmJobs) some() string {
	if len(d.Jobs) < len(fleet)-1 {
		return "too few jobs"
	}
	return ""
}
