package compat

// workflowTools are workflow managers and pilot systems: they submit, ask for states, and cancel.
var workflowTools = []contract{
	{"AiiDA", []call{
		{run: "sbatch job",
			file: "#!/bin/bash\n#SBATCH --no-requeue\n#SBATCH --job-name=\"aiida-12\"\n#SBATCH --get-user-env\n#SBATCH " +
				"--output=_scheduler-stdout.txt\n" +
				"#SBATCH --error=_scheduler-stderr.txt\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --time=00:30:00\n#SBATCH " +
				"--mem=90\ntrue\n",
			lines: `(.*:\s*)?([Gg]ranted job allocation|[Ss]ubmitted batch job)\s+(\d+)`, n: 1},
		// It splits at ^^^ into fourteen fields, and names one job twice so that a job that is gone is no error.
		{run: "SLURM_TIME_FORMAT='standard' squeue --noheader -o '%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V' " +
			"--jobs=$RUN,$RUN", n: 1,
			lines: `<RUN>\^\^\^R\^\^\^None\^\^\^n\d\^\^\^root\^\^\^1\^\^\^1\^\^\^n\d\^\^\^debug\^\^\^10:00\^\^\^(\d+-)?(\d+:)?\d+:\d\d\^\^\^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\^\^\^run\^\^\^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`},
		{run: "SLURM_TIME_FORMAT='standard' squeue --noheader -o '%i^^^%t^^^%r' -uroot",
			has: []string{`^<HELD>\^\^\^PD\^\^\^JobHeldUser$`, `^<DEP>\^\^\^PD\^\^\^Dependency$`}},
		{run: "squeue --noheader -o '%i^^^%t' --jobs=149999,149999"},
		{run: `sacct --format=$(sacct --helpformat | tr -s '\n' ' ' | tr ' ' ',') --parsable --jobs=$DONE`, n: 3, lines: `.*\|`,
			has: []string{`\|JobID\|`, `\|<DONE>\|`}},
		{run: "scancel $DONE"},
	}},
	{"ARC CE", []call{
		{run: `squeue -a -h -o "%i:%T" -t all -j $RUN,$DONE,$CANC`, n: 3, lines: `\d+:[A-Z_]+`,
			has: []string{`^<CANC>:CANCELLED$`, `^<DONE>:COMPLETED$`}},
		{run: "sacct -j $DONE.batch -o NCPUS,NNODES,CPUTimeRAW,Start,End,UserCPU,SystemCPU,ExitCode,State -P | tail -n 1",
			lines: `1\|1\|\d+\|\d{4}-\d\d-\d\dT[\d:]{8}\|\d{4}-\d\d-\d\dT[\d:]{8}\|(\d+-)?[\d:]+(\.\d+)?\|(\d+-)?[\d:]+(\.\d+)?\|0:0\|COMPLETED`},
		// "NCPUS" is how it knows that nothing has run
		{run: "sacct -j $CANC.batch -o NCPUS,NNODES -P | tail -n 1", lines: `NCPUS\|NNodes`},
		{run: "sacct -j $CANC -o ExitCode,State -P | tail -n 1", lines: `0:0\|CANCELLED by 0`},
		{run: `scontrol -o show job $FAILED | sed -n 's/.*ExitCode=\([0-9]*\):\([0-9]*\).*/\1 \2/p'`, lines: "3 0"},
		{run: `scontrol -o show job $DONE | sed -n 's/.*EndTime=\([^ ]*\) .*/\1/p'`, lines: `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`},
		{run: `scontrol -o show job $DONE | sed -n 's/.*NumCPUs=\([^ ]*\) .*/\1/p'`, lines: "1"},
	}},
	{"Autosubmit", []call{
		{run: "sbatch --no-requeue -D . job.sh", lines: `\S+ \S+ \S+ \d+`}, // the fourth word
		{run: `sacct -n -X --jobs $FAILED -o "State"`, lines: ` *FAILED `},
		{run: "sacct -n -X --jobs $DONE,$CANC -o jobid,State", n: 2, lines: `\d+ +(COMPLETED|CANCELLED\+) `},
		{run: "sacct -n --jobs $DONE -o JobId%25,State,NCPUS,NNodes,Submit,Start,End,ConsumedEnergy,MaxRSS%25,AveRSS%25 | head -1",
			lines: ` +<DONE> +COMPLETED +1 +1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ){3} +`},
		{run: "scontrol -o show JobId $HELD | grep -Po '(?<=EligibleTime=)[0-9-:T]*'", exit: 0},
		{run: "squeue -j $HELD -o %A,%R", n: 2, has: []string{`^<HELD>,\(JobHeldUser\)$`}},
		{run: "squeue -o %A,%.50j -n held", n: 2, has: []string{`^<HELD>, +held$`}},
		{run: "id=$(sbatch -H -D . job.sh | cut -d' ' -f4); scontrol hold $id && scontrol release $id && scancel $id"},
	}},
	{"Covalent", []call{
		{run: "scontrol show job $RUN", has: []string{"RUNNING"}, hasNot: "COMPLETED|FAILED"}, // it looks for the words anywhere
		{run: "scontrol show job $DONE", has: []string{"COMPLETED"}, hasNot: "PENDING|RUNNING|COMPLETING|CONFIGURING"},
		{run: "scontrol show job $FAILED", hasNot: "COMPLETED|PENDING|RUNNING|COMPLETING|CONFIGURING"},
	}},
	{"Cylc", []call{
		{run: "sbatch 'job'",
			file: "#!/bin/bash\n#SBATCH --job-name=1.foo.flow\n#SBATCH --output=job.out\n#SBATCH --error=job.err\n#SBATCH " +
				"--time=1:00\ntrue\n", lines: `\ASubmitted\sbatch\sjob\s(\d+)`, n: 1},
		{run: "squeue -h -j $RUN,$DONE", n: 1, lines: ` *<RUN> .*`},
		{run: "squeue -h -j 149999", exit: 1, errs: noJobError}, // the job is over
		{run: "scancel '149999'"},
	}},
	{"DIRAC", []call{
		{run: "sbatch --export=PATH -o ./%j.out -e ./%j.err --partition=debug --ntasks-per-node=1 --nodes=1 --cpus-per-task=1  job.sh",
			lines: submitted},
		// the list ends in a comma
		{run: "sacct -j $RUN,$DONE,$FAILED, -o JobID,STATE -X -n -P --delimiter=,", n: 3, lines: `\d+,(RUNNING|COMPLETED|FAILED)`},
		{run: "squeue --partition=debug --user=root --format='%j %T '", has: []string{`^run RUNNING $`, `^held PENDING $`},
			lines: `\S+ \S+ `},
		{run: "scancel --partition=gpu $HELD"}, // not its partition: nothing happens
		{run: "squeue -h -o %T -j $HELD", lines: "PENDING"},
		{run: "scancel --partition=debug 149999", exit: 1,
			errs: "scancel: error: Kill job error on job id 149999: Invalid job id specified\n"},
	}},
	{"EasyBuild", []call{
		{run: "sbatch --version", lines: `slurm 2\d\.\d\d\.\d+`, n: 1}, // the last of all words is the version
		{run: `sbatch --hold --export "PATH" --job-name "eb" --nodes "1" --ntasks "1" --ntasks-per-node "1" --time "60" --wrap "true"`,
			lines: `^Submitted batch job ([0-9]+)`},
		{run: `sbatch --kill-on-invalid-dep=yes --dependency "afterok:$HELD" --hold --job-name "eb" --time "60" --wrap "true"`,
			lines: submitted},
		{run: "scontrol release $(squeue -h -n eb -o %A | paste -sd' ')"}, // several ids, each a word
		{run: "scancel -n eb"},
	}},
	{"FireWorks", []call{
		{run: "sbatch job.sh", lines: `Submitted batch job \d+`, n: 1},
		{run: `squeue '-o "%u"' -u root`, lines: ` "(USER|root)"`}, // the blank and the quotes belong to the format
	}},
	{"HTCondor blahp", []call{
		{run: "scontrol -M $CLUSTER show job $RUN", has: []string{`^JobId=<RUN> `, `^\s*BatchHost=[\w\-.]+$`, `^\s*JobState=RUNNING `,
			`^.* ExitCode=-?[0-9]+:[0-9]+`}},
		{run: "scontrol show job", has: []string{`^JobId=<RUN> `, `^JobId=<HELD> `}},
		{run: "scontrol show job 149999", exit: 1, errs: noJobError}, // exit code 1 is "completed"
		{run: "sacct -j $DONE --noconvert -P --format UserCPU,SystemCPU,MaxRSS,ExitCode", n: 3,
			// MaxRSS without a unit
			lines: `UserCPU\|SystemCPU\|MaxRSS\|ExitCode|(\d+-)?([\d]+:)?\d+:[\d.]+\|(\d+-)?([\d]+:)?\d+:[\d.]+\|\d*\|0:0`},
	}},
	{"HyperQueue", []call{
		{run: "sbatch job",
			file: "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --job-name=hq-0-1\n#SBATCH --output=stdout\n#SBATCH --error=stderr\n#SBATCH " +
				"--time=00:10:00\ntrue\n", lines: submitted},
		{run: "scontrol show job $DONE", has: []string{`\bJobState=COMPLETED\b`, `\bStartTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b`,
			`\bEndTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b`}},
		{run: "scontrol show job $RUN", has: []string{`\bRunTime=(\d+-)?\d\d:\d\d:\d\d\b`, `\bTimeLimit=(\d+-)?\d\d:\d\d:\d\d\b`}},
	}},
	{"jobflow-remote", []call{ // by qtoolkit
		{run: "SLURM_TIME_FORMAT='standard' scontrol show job -o $RUN", n: 1, read: keyed,
			has: []string{`JobState=RUNNING `, `MinMemoryCPU=100M `, `NumNodes=1 `, `NumCPUs=1 `, `CPUs/Task=1 `, `TimeLimit=00:10:00 `}},
		{run: "SLURM_TIME_FORMAT='standard' scontrol show job -o $BLOCKED", n: 1, read: keyed}, // with a diagnosis, too
		{run: "SLURM_TIME_FORMAT='standard' squeue --noheader -o '%i<><> %t<><> %r<><> %j<><> %u<><> %P<><> %l<><> %D<><> %C<><> %M<><> " +
			"%m' --jobs=$RUN,$RUN", n: 1,
			lines: `<RUN><><> R<><> None<><> run<><> root<><> debug<><> 10:00<><> 1<><> 1<><> [\d:]+<><> 100M`},
		{run: "scancel -v $DONE", errs: `(?s)(.*:\s*)?(Terminating job)\s+(<DONE>)\n.*`}, // it reads the id there
		{run: "scancel -v 149999",
			errs: `(?s)(.*:\s*)?(Terminating job)\s+149999\n.*Kill job error on job id 149999: Invalid job id specified\n`},
	}},
	{"Maestro", []call{
		{run: "sbatch job -D .",
			file: "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -p debug\n#SBATCH -t 00:05:00\n#SBATCH -J step\n#SBATCH --comment \"some " +
				"words\"\ntrue\n", lines: `\D*\d+`},
		{run: "squeue -u $USER -t all", has: []string{`^ *JOBID +PARTITION +NAME +USER +ST +TIME +NODES +NODELIST\(REASON\)$`,
			`^ *<DONE> +debug +done +root +CD `, `^ *<FAILED> +debug +failed +root +F `}},
		{run: "scancel --quiet 149999 $DONE"},
	}},
	{"Parsl", []call{
		{run: "sbatch job",
			file: "#!/bin/bash\n\n#SBATCH --job-name=parsl.block\n#SBATCH --output=parsl.stdout\n#SBATCH --error=parsl.stderr\n#SBATCH " +
				"--nodes=1\n#SBATCH --time=10\n#SBATCH --ntasks-per-node=1\n#SBATCH --mem=1g\n#SBATCH --cpus-per-task=1\ntrue\n",
			lines: submitted},
		{run: "squeue --noheader --format='%i %t' --job \"$RUN,$DONE,149999\"", n: 1, lines: "<RUN> R"}, // what is missing has completed
		{run: "scancel 149999 149998"},
	}},
	{"PSI/J", []call{
		// three words each, whatever the reason
		{run: "squeue -O JobArrayID,StateCompact,Reason -t all -j $RUN,$HELD,$DONE,$CANC,$FAILED", n: 6, lines: `\S+ +\S+ +\S+ *`,
			has: []string{`^<FAILED> +F +NonZeroExitCode *$`, `^<DONE> +CD +None *$`}},
		{run: "squeue -O JobArrayID,StateCompact,Reason -t all -j $BLOCKED,$DEP", n: 3, lines: `\S+ +\S+ +\S+ *`},
		{run: "scancel -Q $DONE"},
	}},
	{"RADICAL-SAGA", []call{
		{run: "sbatch 'job.sh'; true", lines: `Submitted batch job \d+`},
		{run: "scontrol show job $DONE", has: []string{`JobState=COMPLETED`, `ExitCode=0:0`, `RunTime=`, `NodeList=n\d`}},
		{run: "sacct --format=JobID,State --parsable2 --noheader --jobs=$CANC", lines: `<CANC>\|CANCELLED by 0`},
		{run: `squeue -h -o "%i" -u root`, lines: `\d+(_(\d+|\[[\d,%-]+\]))?`},
		{run: "scontrol suspend 149999", exit: 1, errs: `(?s)Invalid job id specified for job 149999\n.*`},
	}},
	{"ReFrame", []call{
		{run: "sbatch job",
			file: "#!/bin/bash\n#SBATCH --job-name=\"rfm_x\"\n#SBATCH --ntasks=1\n#SBATCH --output=rfm.out\n#SBATCH " +
				"--error=rfm.err\n#SBATCH --time=0:10:0\n#SBATCH --hint=nomultithread\n#SBATCH --constraint=cpu&intel\ntrue\n",
			lines: submitted},
		// steps are rows that it does not know
		{run: "SLURM_TIME_FORMAT=%s sacct -S $(date +%F) -P -j $DONE,$FAILED,$CANC,$ARR -o jobid,state,exitcode,end,nodelist",
			has: []string{`^<DONE>\|COMPLETED\|0:0\|\d+\|n\d$`, `^<FAILED>\|FAILED\|3:0\|\d+\|n\d$`,
				`^<CANC>\|(\S+)([^|]*)\|0:0\|\d+\|None assigned$`, `^<ARR>_\[1-4%2\]\|PENDING\|0:0\|Unknown\|None assigned$`}},
		{run: "scontrol -a show -o nodes", n: 6, lines: `NodeName=\S+ .*\bActiveFeatures=\S+ .*\bState=\S+ .*\bPartitions=\S+ .*`},
		{run: "scontrol -a show -o partitions", has: []string{`PartitionName=debug\s+.*Default=YES.*`}},
		{run: "scontrol -a show -o node n[1-2]", n: 2, lines: `NodeName=n\d .*`},
		{run: "scontrol create reservation=rfm nodes=n1,n2 users=root start=now+1days duration=10 >/dev/null; scontrol -a show res rfm",
			has: []string{`(Nodes=\S+)`}},
		// what the line above printed is typed as it is
		{run: "scontrol -a show -o Nodes=n[1-2]; scontrol delete reservationname=rfm", n: 2, lines: `NodeName=n\d .*`},
		{run: "squeue -h -j $BLOCKED -o %r", lines: `\S+(, \S+)?`},
		{run: `squeue -h -j $RUN,$HELD -o "%i|%T|%N|%r"`, n: 2, lines: `\d+\|(\S+)\|(\S*)\|(.+)`},
	}},
	{"row", []call{
		{run: "printf '#!/bin/bash\\n#SBATCH --job-name=a-b+2\\n#SBATCH --output=a-%%j.out\\n#SBATCH --partition=debug\\n#SBATCH " +
			"--ntasks=1\\n#SBATCH --time=5\\n#SBATCH --mem-per-cpu=90M\\ntrue\\n' | sbatch --parsable", lines: `\d+`},
		{run: `squeue --jobs "1,$RUN," -o %A --noheader`, lines: "<RUN>", n: 1}, // a job that is not there stands first, a comma last
		{run: `squeue --jobs "1,149999," -o %A --noheader`},
	}},
	{"signac-flow", []call{
		{run: "squeue -u root -h --format=%2t%100j", lines: `(PD|R |CG|CF)\S+ *`, has: []string{`^R run +$`, `^PDheld +$`}},
		{run: "sbatch --version 2>&1", has: []string{"^slurm "}},
	}},
	{"Snakemake plugin", []call{
		{run: "scontrol show config | grep '^MinJobAge'", lines: `MinJobAge\s*= (\d+) sec`},
		{run: `sacctmgr -n -s list user "root" format=account%256`, lines: ` *root `, n: 1},
		// typed without a shell: it goes on without an account
		{run: `sacct -nu "root" -o Account%256 '|' tail -1`, exit: 1, errs: `(?s)sacct: invalid option -- '1'\n.*`},
		{run: "sacct -X --parsable2 --clusters all --noheader --format=JobIdRaw,State --starttime $(date -d '2 days ago' " +
			"+%Y-%m-%dT%H:00) --endtime now --name done", has: []string{`^<DONE>\|COMPLETED$`}},
		{run: "sacct --name=done --parsable2 --noheader --format=JobID,JobName,Comment,Elapsed,TotalCPU,NNodes,NCPUS,MaxRSS,ReqMem",
			has: []string{`^<DONE>\|done\|\|\d\d:\d\d:\d\d\|(\d\d:)?\d\d:\d\d(\.\d+)?\|1\|1\|\|100M$`, `^<DONE>\.batch\|batch\|`}},
		{run: "scontrol show partition -M $CLUSTER", has: []string{`^PartitionName=gpu$`, `\bMaxTime=2-00:00:00 `, `\bMaxNodes=UNLIMITED `,
			`\bTotalCPUs=16 TotalNodes=2 `, `^\s*TRES=cpu=16,.*gres/gpu=4`}},
	}},
	{"Snakemake profile", []call{
		{run: "sacct --cluster=$CLUSTER -P -b -j $DONE -n", has: []string{`^<DONE>\|COMPLETED\|0:0$`}},
		{run: "scontrol --cluster=$CLUSTER -o show job $FAILED", has: []string{`JobState=(FAILED)`}},
	}},
	{"Toil", []call{
		{run: "sbatch -J toil_job_1_x --signal=B:INT@30 --export=ALL,TOIL=1,BASH_ENV=x --mem=100 --cpus-per-task=1 --time=0:600 " +
			"--wrap='exec true'", lines: `.* (\d+)`},
		// six words, each behind one blank
		{run: `sinfo -a -o "%P %G %l %p %c %m"`, n: 4, lines: `\S+ \S+ \S+ \S+ \S+ \S+`,
			has: []string{`^gpu gpu:a100:2 2-00:00:00 1 8 8000$`}},
		{run: `squeue -h --format "%i %t %M"`, lines: `\S+ \S+ (\d+-)?(\d+:)?\d+:\d\d`},
		{run: "sacct -n -j $DONE,$FAILED,$CANC --format JobIDRaw,State,ExitCode -P -S 1970-01-01", n: 5,
			lines: `\d+(\.\w+)?\|[A-Z_]+( by \d+)?\|\d+:\d+`},
		{run: "scontrol show job $FAILED", has: []string{`^JobId=<FAILED> `, `\bJobState=FAILED `, `\bExitCode=3:0$`}},
	}},
	{"Troika", []call{
		{run: "sbatch <job.sh", lines: `(?:Submitted batch job )?(\d+)`, n: 1},
		{run: "squeue -h -o %T -j $HELD", lines: "PENDING"},
		{run: "squeue -u root -j $RUN", n: 2},
		{run: "scancel -t PENDING $DONE", exit: 1, errs: "scancel: error: Kill job error on job id <DONE>: Invalid job id specified\n"},
		{run: "scancel -t RUNNING $HELD"}, // started meanwhile or not: no error
		{run: "scancel $DONE -f -s 15", exit: 1, errs: "scancel: error: Kill job error on job id <DONE>: Invalid job id specified\n"},
		// pending yet: cancelled without a signal, above
		{run: "scancel $HELD -f -s 15", exit: 228,
			errs: `(?s)scancel: error: Kill job error on job id <HELD>: Job can not be altered now, try again later\n.*`},
	}},
}
