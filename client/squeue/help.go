package squeue

const usage = `Usage: squeue [-A account] [-u user_name] [--me] [--job jobid] [-n name] [-p partitions]
              [--qos qos] [-t states] [-w nodes] [--reservation reservation] [-L licenses]
              [--sort fields] [-i seconds] [-o format] [-O format] [--start] [--step step_id]
              [--clusters names] [-ahjlrsv] [-P] [--noconvert] [--json] [--yaml]
              [--federation] [--local] [--sibling] [--usage]
`

const help = `Usage: squeue [OPTIONS]

Shows jobs that wait, run or are being cleaned up.

Which jobs:
  -u, --user=LIST          users, by name or number         --me  the caller, --notme  all others
  -j, --jobs=LIST          12, 12_3, 12_[1-3]
  -p, --partition=LIST     partitions                       -n, --name=LIST  job names
  -A, --account=LIST       accounts                         -q, --qos=LIST   qualities of service
  -t, --states=LIST        PD,R,CG,…; "all" for ended jobs too
  -w, --nodelist=HOSTS     jobs that hold one of the nodes
  -R, --reservation=NAME   jobs in a reservation            -L, --licenses=LIST  jobs that ask for one
  -s, --steps[=LIST]       steps in place of jobs
  -a, --all                partitions that are hidden, too  --hide  not those (default)
  -M, --clusters=NAME      this cluster, or "all"

What about them:
  -o, --format=FORMAT      "%.18i %9P …": letters with [.][width], "." aligns right; %all for all
  -O, --Format=FIELDS      JobID:10,Name:.20,State:|,…; see squeue(1) for the names
  -l, --long               state in full, and the time limit
      --start              when and where pending jobs are expected to start
  -r, --array              a row for each task of an array
  -P, --priority           a row for each partition that a pending job names
  -S, --sort=LETTERS       "P,-p,i": letters of -o, "-" for descending (default P,t,-p)
  -h, --noheader           no header
      --noconvert          2048M stays 2048M
      --only-job-state     ids and states alone
      --json, --yaml       a document in the shape of data_parser v0.0.42; SLURM_JSON=compact leaves out blanks
  -i, --iterate=SECONDS    again and again
  -v, --verbose            accepted

Help options:
      --help               this text
      --usage              the short one
  -V, --version            versions

Environment: SQUEUE_FORMAT, SQUEUE_FORMAT2, SQUEUE_STATES, SQUEUE_SORT, SQUEUE_USERS, SQUEUE_PARTITION, SQUEUE_NAMES,
SQUEUE_ACCOUNT, SQUEUE_QOS, SQUEUE_ARRAY, SQUEUE_ALL, SLURM_TIME_FORMAT, SLURM_BITSTR_LEN, SLURM_JSON.

Examples:
  squeue --me -o "%.10i %.20j %.8T %.10M %R"     my jobs, with long names
  squeue -t PD --start                           when will they start?
  squeue -h -t all -j 42 -o %T                   how did job 42 end?
  squeue --json -u alice | jq '.jobs[].job_state'
  squeue -p gpu -O "JobID:10,UserName:12,tres-per-node:30,ReasonList"
`
