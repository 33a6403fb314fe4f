package sacct

const usage = "Usage: sacct [options]\n\tUse --help for help\n"

const help = `Usage: sacct [OPTIONS]
     Valid <OPTION> values are:

Shows what became of jobs and their steps, long after squeue has forgotten them. Everything that was submitted is there, at once.

Which jobs:
  -j, --jobs=LIST          12, 12_3, 12_[1-3], 12.batch     -u, --user=LIST      users, by name or number
  -a, --allusers           of all users (root: always)      -g, --group=LIST     groups
  -A, --accounts=LIST      accounts                         -q, --qos=LIST       qualities of service
  -r, --partition=LIST     partitions                       -N, --nodelist=HOSTS jobs that ran on one of the nodes
      --name=LIST          job names                        -W, --wckeys=LIST    wckeys
  -C, --constraints=LIST   jobs that asked for all of them  -F, --flags=LIST     SchedSubmit, SchedMain, SchedBackfill
  -i, --nnodes=N[-M]       on so many nodes                 -I, --ncpus=N[-M]    on so many CPUs
  -k, --timelimit-min=T    with this limit, or from it on   -K, --timelimit-max=T  to this one
  -R, --reason=LIST        that waited for one of these     -M, --clusters=NAME  this cluster
  -s, --state=LIST         in one of these states in the time: R,PD,S,CD,CA,F,TO,OOM,NF,PR,DL,BF,RQ
  -S, --starttime=TIME     from TIME on: default midnight; with -s now, with -j ever
  -E, --endtime=TIME       until TIME: default now; with -s and -S the same as -S
  -D, --duplicates         every attempt of a requeued job, not the last one alone

  TIME is HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY][-HH:MM[:SS]], YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon,
  or now[{+|-}COUNT[seconds|minutes|hours|days|weeks]].

What is shown:
  -X, --allocations        jobs without their steps         -T, --truncate       start and end cut to the time
  -o, --format=FIELDS      FIELD[%[-]WIDTH],…; "all"        -e, --helpformat     the fields there are
  -b, --brief              jobid,state,exitcode             -l, --long           many fields
  -n, --noheader           no header                        -p, --parsable       fields with | behind them
  -P, --parsable2          fields with | between them       --delimiter=TEXT     in place of |
      --units=KMGTP        sizes in this unit               --noconvert          sizes as they are
  -B, --batch-script       the scripts of -j                --env-vars           their environments
      --json, --yaml       a document of all that is known  -v, --verbose        say the time that is looked at

Help options:
  -h, --help               this text                        --usage              the short one
  -V, --version            versions

Examples:
  sacct -j 12 -o jobid,state,exitcode,elapsed,maxrss,totalcpu
  sacct -X -S now-7days -s F,TO,OOM -E now
  sacct -aXPn -S 2026-01-01 -o jobidraw,user,alloctres,elapsedraw

Environment: SACCT_FORMAT, SLURM_TIME_FORMAT, SLURM_BITSTR_LEN.
`
