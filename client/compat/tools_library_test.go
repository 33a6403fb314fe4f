package compat

// libraryTools are what scientists' own programs call Slurm through: Python, R, MATLAB, speech and imaging toolkits.
var libraryTools = []contract{
	{"batchtools", []call{
		{run: "sbatch job.sh", lines: `\S+ \S+ \S+ (\d+)`}, // the fourth word
		{run: "squeue --user=$USER --states=R,S,CG --noheader --format=%i -r", lines: `\d+(_\d+)?`, has: []string{`^<RUN>$`},
			hasNot: `^<HELD>$`},
		{run: "squeue --user=$USER --states=PD --noheader --format=%i -r", lines: `\d+(_\d+)?`, has: []string{`^<ARR>_4$`, `^<HELD>$`}},
		{run: "squeue --user=$USER --states=R,S,CG --noheader --format=%i -r --clusters=$CLUSTER", has: []string{`^<RUN>$`}},
		{run: "scancel --clusters=$CLUSTER 149999"},
	}},
	{"dask-jobqueue", []call{
		{run: "sbatch job",
			file: "#!/usr/bin/env bash\n\n#SBATCH -J dask-worker\n#SBATCH -e ./dask-worker-%J.err\n#SBATCH -o " +
				"./dask-worker-%J.out\n#SBATCH -p debug\n#SBATCH -n 1\n" +
				// the first number
				"#SBATCH --cpus-per-task=2\n#SBATCH --mem=90M\n#SBATCH -t 00:30:00\n\nJOB_ID=${SLURM_JOB_ID%;*}\ntrue\n", lines: `.*?\d+`,
			n: 1},
		{run: "scancel $DONE"}, // a job that is gone is no failure
	}},
	{"fsl_sub", []call{ // the number up to a semicolon, though --parsable stands in the script
		{run: "sbatch <job",
			file: "#!/bin/bash\n#SBATCH --export=ALL\n#SBATCH -o ./x.o%j\n#SBATCH -e ./x.e%j\n#SBATCH --job-name=x\n#SBATCH -p " +
				"debug\n#SBATCH --parsable\n#SBATCH --requeue\n\ntrue\n", lines: `\d+(;\S+)?`, n: 1},
		{run: "sacct -j $DONE --parsable2 --noheader --units=M --duplicate --format " +
			"JobID,JobName,Submit,Start,End,UserCPU,SystemCPU,State,ExitCode,MaxVMSize", n: 2,
			lines: `\d+(\.batch)?\|\w+\|([\d-]{10}T[\d:]{8}\|){3}((\d+-)?[\d:.]+\|){2}COMPLETED\|0:0\|.*`},
		{run: "sacctmgr -P -r -n list Account", lines: `[^|]+\|[^|]*\|[^|]*`, has: []string{`^root\|`}},
		{run: "sinfo --noheader -p nosuch"}, // how it tells that there is no such partition
	}},
	{"ipython-cluster-helper", []call{
		{run: "sinfo --noheader -p debug -o %g", lines: "all"},
		{run: "sinfo --noheader -p debug", lines: `\S+ +up 1-00:00:00 +\d .*`}, // the third word is the limit
	}},
	{"Kaldi slurm.pl", []call{
		// once, whatever else
		{run: "mkdir -p q; sbatch --export=PATH  --ntasks-per-node=1 --mem-per-cpu 90M  --open-mode=append -e q/x.log -o q/x.log " +
			"--array 1-2 job.sh >>q/x.log 2>&1; cat q/x.log", n: 1, lines: submitted},
		{run: "squeue -j 149999 2>&1", exit: 1, lines: "slurm_load_jobs error: Invalid job id specified"},
		{run: "squeue -j $RUN >/dev/null 2>&1"},
	}},
	{"MATLAB Parallel Server", []call{
		{run: "squeue -j $RUN,$DONE,$CANC --states=all --Format=jobarrayid,state --noheader --array", n: 3,
			lines: `\d+ +(RUNNING|COMPLETED|CANCELLED) +`},
	}},
	{"nipype", []call{
		{run: "sbatch -o ./slurm-%j.out -e ./slurm-%j.out -J 0.node.root job.sh", lines: "Submitted batch job ([0-9]*)"}, // the last line
		{run: "squeue -j $RUN", has: []string{"<RUN>"}},
		{run: "squeue -j 149999", exit: 1, errs: noJobError},
	}},
	{"slurm-magic", []call{ // each header and each row split at blanks, into as many columns
		{run: "squeue -u root", lines: `\s*(\S+\s+){7}\S+`},
		{run: "sinfo", lines: `(\S+\s+){5}\S+`},
	}},
	{"submitit", []call{
		{run: "sbatch job",
			file: "#!/bin/bash\n\n# Parameters\n#SBATCH --array=0-1%2\n#SBATCH --error=./%A_%a_0_log.err\n#SBATCH " +
				"--job-name=submitit\n#SBATCH --mem=1GB\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n" +
				"#SBATCH --open-mode=append\n#SBATCH --output=./%A_%a_0_log.out\n#SBATCH --signal=USR1@90\n#SBATCH --time=5\n#SBATCH " +
				"--wckey=submitit\n\n# command\nexport SUBMITIT_EXECUTOR=slurm\ntrue\n", lines: `.*job ([0-9]+)`},
		{run: "sacct -o JobID,State --parsable2 -j $DONE -j $ARR", has: []string{`\AJobID\|State$`, `^<DONE>\|COMPLETED$`,
			`^<ARR>_\[(\d+(-\d+)?(,)?)+(%\d+)?\]\|PENDING$`}},
	}},
}
