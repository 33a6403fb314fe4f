package compat

import (
	"strings"
	"testing"
)

// stepTools start their processes with srun or salloc: within a job that they submit, or from where they run.
var stepTools = []contract{
	{"submitit (srun)", []call{{
		file: "#!/bin/bash\n\n# Parameters\n#SBATCH --error=%j_0_log.err\n#SBATCH --job-name=submitit\n#SBATCH --nodes=1\n" +
			"#SBATCH --ntasks-per-node=2\n#SBATCH --open-mode=append\n#SBATCH --output=%j_0_log.out\n#SBATCH --signal=USR2@90\n" +
			"#SBATCH --time=5\n#SBATCH --wckey=submitit\n\n# command\nexport SUBMITIT_EXECUTOR=slurm\n" +
			"srun --unbuffered --output %j_%t_log.out --error %j_%t_log.err sh -c " +
			`'echo "task $SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID, $SLURM_NODEID, $SUBMITIT_EXECUTOR"'` + "\n",
		run: "id=$(sbatch --wait job | grep -oE '[0-9]+'); cat ${id}_0_log.out ${id}_1_log.out; cat ${id}_?_log.err",
		has: []string{`^task 0 of 2, 0, 0, slurm$`, `^task 1 of 2, 1, 0, slurm$`}, n: 2}}},
	{"batchspawner (srun)", []call{
		{file: "#!/bin/bash\n#SBATCH --output=jupyterhub_slurmspawner_%j.log\n#SBATCH --job-name=spawner-jupyterhub\n#SBATCH --chdir=.\n" +
			"#SBATCH --export=PATH\n#SBATCH --get-user-env=L\n#SBATCH --mem=90\nset -euo pipefail\ntrap 'echo SIGTERM received' TERM\n" +
			"which sh >/dev/null\nsrun sh -c 'echo single user server on $SLURMD_NODENAME'\necho \"jupyterhub-singleuser ended gracefully\"\n",
			run: "id=$(sbatch --wait --parsable job); cat jupyterhub_slurmspawner_$id.log", n: 2,
			lines: `single user server on n\d|jupyterhub-singleuser ended gracefully`}}},
	{"Ray (launch script)", []call{{
		file: "#!/bin/bash\n#SBATCH --job-name=ray\n#SBATCH --nodes=2\n#SBATCH --exclusive\n#SBATCH --tasks-per-node=1\n#SBATCH -o ray.out\n" +
			"nodes=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\nnodes_array=($nodes)\nnode_1=${nodes_array[0]}\n" +
			"ip=$(srun --nodes=1 --ntasks=1 -w \"$node_1\" hostname)\n[ -n \"$ip\" ] && echo \"head $node_1\"\n" +
			"srun --nodes=1 --ntasks=1 -w \"$node_1\" sh -c 'echo started $SLURMD_NODENAME; sleep 1000' &\n" +
			"worker_num=$((SLURM_JOB_NUM_NODES - 1))\nfor ((i = 1; i <= worker_num; i++)); do\n  node_i=${nodes_array[$i]}\n" +
			"  srun --nodes=1 --ntasks=1 -w \"$node_i\" sh -c 'echo worker $SLURMD_NODENAME; sleep 1000' &\ndone\n" +
			"until grep -q worker ray.out && grep -q started ray.out; do sleep 0.1; done\necho done\n",
		run: "sbatch --wait job >/dev/null; grep -v '^s' ray.out; grep started ray.out", n: 4,
		has: []string{`^head n\d$`, `^started n\d$`, `^worker n\d$`, `^done$`}}}},
	{"torchrun (launch script)", []call{{
		file: "#!/bin/bash\n#SBATCH --job-name=multinode-example\n#SBATCH --nodes=2\n#SBATCH --ntasks=2\n#SBATCH --cpus-per-task=2\n" +
			"#SBATCH -o torch.out\nnodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )\nnodes_array=($nodes)\n" +
			"head_node=${nodes_array[0]}\nhead_node_ip=$(srun --nodes=1 --ntasks=1 -w \"$head_node\" hostname)\n" +
			"echo Node IP: ${head_node_ip:+known}\nexport LOGLEVEL=INFO\n" +
			"srun sh -c 'echo nnodes=$SLURM_NNODES node=$SLURM_NODEID rank=$SLURM_PROCID'\n",
		run: "sbatch --wait job >/dev/null; sort torch.out", n: 3,
		has: []string{`^Node IP: known$`, `^nnodes=2 node=0 rank=0$`, `^nnodes=2 node=1 rank=1$`}}}},
	{"Lightning (srun)", []call{{
		file: "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH -p gpu\n#SBATCH --gres=gpu:2\n#SBATCH --ntasks-per-node=2\n#SBATCH --mem=0\n" +
			"#SBATCH --time=0-02:00:00\n#SBATCH --signal=SIGUSR1@90\n#SBATCH -o pl.out\n" +
			"srun sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_JOB_NAME $CUDA_VISIBLE_DEVICES'\n",
		run: "sbatch --wait job >/dev/null; sort pl.out", n: 2, lines: `[01] [01] 0 2 job 0,1`}}},
	{"Snakemake (slurm-jobstep)", []call{{
		file: "#!/bin/bash\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=2\n#SBATCH --mem 90\n#SBATCH -o jobstep.out\n" +
			"srun -n1 --cpu-bind=q sh -c 'echo rule on $SLURM_CPUS_ON_NODE'\n",
		run: "sbatch --wait job >/dev/null; cat jobstep.out", lines: `rule on 2`}}},
	{"dask-jobqueue (SLURMRunner)", []call{{
		run: `srun -n 3 sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS in ${SLURM_JOB_ID:+a job}' | sort`, n: 3,
		lines: `[012] of 3 in a job`}}},
	{"Parsl (SrunLauncher)", []call{{
		file: "#!/bin/bash\n#SBATCH --job-name=parsl.block\n#SBATCH --output=parsl.out\n#SBATCH --nodes=1\n#SBATCH --time=10\n" +
			"#SBATCH --ntasks-per-node=1\nset -e\nexport CORES=$SLURM_CPUS_ON_NODE\nexport NODES=$SLURM_JOB_NUM_NODES\n" +
			"cat << SLURM_EOF > cmd_$SLURM_JOB_NAME.sh\necho worker \\$SLURM_PROCID\nSLURM_EOF\nchmod a+x cmd_$SLURM_JOB_NAME.sh\n" +
			"srun --ntasks 1 -l  bash cmd_$SLURM_JOB_NAME.sh\n",
		run: "sbatch --wait job >/dev/null; cat parsl.out", lines: `0: worker 0`}}},
	// They start a daemon of their own on each node.
	{"Hydra and PRRTE (srun)", []call{
		{run: "salloc -Q -N2 -n2 sh -c 'srun -N 2 -n 2 --nodelist $SLURM_JOB_NODELIST --input none sh -c \"echo proxy \\$SLURM_NODEID\"' | sort",
			n: 2, lines: `proxy [01]`},
		{run: "salloc -Q -N2 -n2 sh -c 'srun --ntasks-per-node=1 --kill-on-bad-exit --mpi=none --cpu-bind=none --nodes=2 " +
			"--nodelist=$SLURM_JOB_NODELIST --ntasks=2 sh -c \"echo prted \\$SLURM_NODEID\"' | sort", n: 2, lines: `prted [01]`}}},
	{"ReFrame (srun)", []call{{run: "srun --ntasks=2 --ntasks-per-node=2 hostname", n: 2, lines: `.+`}}},
}

// TestStepTools types what these tools type.
func TestStepTools(t *testing.T) {
	p := newTool(t, scripts)
	for _, c := range stepTools {
		t.Run(c.tool, func(t *testing.T) {
			q := &tool{t: t, session: &session{t: t, sys: p.sys, mask: p.mask, vars: p.vars}}
			for _, call := range c.calls {
				q.check(strings.NewReplacer(), call)
			}
		})
	}
}
