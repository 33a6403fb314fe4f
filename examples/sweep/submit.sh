#!/bin/bash
# A sweep: an array with a job for each line of parameters.txt, and one that collects the results when all of them have succeeded.
set -eu
cd "$(dirname "$0")"
n=$(wc -l <parameters.txt)
sweep=$(sbatch --parsable --array=1-"$n" "$@" sweep.sbatch)
sbatch --dependency=afterok:"$sweep" --export=ALL,SWEEP="$sweep" "$@" collect.sbatch
