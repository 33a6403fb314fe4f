#!/bin/bash
# The demonstration of `make demo`: a cluster of two nodes on this machine, a training job, and a job that reaches its time
# limit. It ends with the cluster stopped, and looks for what might have been left behind. Needs `make build` to have run.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold= dim= green= red= plain=
fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '%s$ %s%s\n' "$dim" "$*" "$plain"; "$@"; }
die() { printf '%sdemo: %s%s\n' "$red" "$*" "$plain" >&2; exit 1; }

bin=${SLUICE_BIN:-$root/bin}
[ -x "$bin/sluice" ] || ! command -v sluice >/dev/null || bin=$(dirname "$(command -v sluice)") # installed
[ -x "$bin/sluice" ] || die "bin/sluice is missing: run make build"
command -v python3 >/dev/null || die "python3 is missing: apt-get install python3-minimal"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")
finish() {
	local code=$?
	if [ -d "$tmp/cluster" ]; then "$bin/sluice" down --now --dir "$tmp/cluster" >/dev/null 2>&1 || code=1; fi
	cd /
	rm -rf "$tmp"
	exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM

# state ID gives a job's state, field ID KEY the value of a key of scontrol show job.
field() { scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1; }
state() { field "$1" JobState; }
# until_state ID SECONDS STATE… waits until the job is in one of the states.
until_state() {
	local id=$1 end=$((SECONDS + $2)) now
	shift 2
	while now=$(state "$id"); ! [[ " $* " == *" $now "* ]]; do
		[ $SECONDS -lt $end ] || die "job $id is $now, expected $*; $(field "$id" Reason)"
		sleep 0.2
	done
}

title "A cluster on this machine: one controller, two nodes"
show "$bin/sluice" up --dir "$tmp/cluster" --nodes 2
. "$tmp/cluster/env.sh"
show sinfo

title "Two jobs: a training, and one that will not keep to its time limit"
cp -r "$root/examples/spirals" "$tmp/work"
cp "$root/examples/overrun.sbatch" "$tmp/work/"
# Jobs that are killed get five seconds between SIGTERM and SIGKILL in this demonstration, instead of thirty.
echo 'KillWait=5' >>"$SLURM_CONF"
scontrol reconfigure
cd "$tmp/work"
show sbatch train.sbatch
show sbatch overrun.sbatch
until_state 1 90 RUNNING COMPLETED
until_state 2 90 RUNNING
show squeue
show scontrol show job 1

title "What the training writes, while it runs"
out=$(field 1 StdOut)
printf '%s$ tail -f %s%s\n' "$dim" "${out##*/}" "$plain"
shown=0
while :; do
	now=$(state 1)
	lines=$(wc -l <"$out" 2>/dev/null || echo 0)
	if [ "$lines" -gt "$shown" ]; then
		sed -n "$((shown + 1)),${lines}p" "$out" | awk '!/^epoch/ || $2 % 10 == 0'
		shown=$lines
	fi
	case $now in PENDING | RUNNING | COMPLETING | CONFIGURING) sleep 0.3 ;; *) break ;; esac
done
[ "$now" = COMPLETED ] || die "the training is $now"
printf '%sjob 1 is %s, exit code %s, after %s%s\n' "$green" "$now" "$(field 1 ExitCode)" "$(field 1 RunTime)" "$plain"

title "The other job runs until its minute is over"
while [ "$(state 2)" = RUNNING ]; do
	squeue -h -j 2 -o 'job %i (%j) is %T on %N, %M of %l'
	until_next=$((SECONDS + 10))
	while [ $SECONDS -lt $until_next ] && [ "$(state 2)" = RUNNING ]; do sleep 0.3; done
done
until_state 2 90 TIMEOUT
show scontrol show job 2
show cat overrun-2.out
printf '%sjob 2 is %s after %s, exit code %s; the process that it left behind went with it%s\n' \
	"$green" "$(state 2)" "$(field 2 RunTime)" "$(field 2 ExitCode)" "$plain"

title "The cluster is stopped"
cluster=$(sed -n 's/^ClusterName=//p' "$SLURM_CONF")
show "$bin/sluice" down --dir "$tmp/cluster"
left=()
for p in /proc/[0-9]*; do
	if tr '\0' ' ' <"$p/cmdline" 2>/dev/null | grep -qF "$tmp"; then left+=("process ${p#/proc/}"); fi
done
while read -r dir; do left+=("cgroup $dir"); done < <(find /sys/fs/cgroup -type d -path "*/sluice/$cluster*" 2>/dev/null)
while read -r _ at _; do left+=("mount $at"); done < <(grep -F " $tmp" /proc/self/mounts || true)
[ ${#left[@]} = 0 ] || die "left behind: ${left[*]}"
printf '%sNothing is left behind: no process, no cgroup, no mount.%s\n' "$green" "$plain"
