#!/bin/bash
# The demonstration of `make demo`: what README.md claims, on a cluster of this machine, in well under a minute. Each claim is
# checked; the first one that does not hold ends it with an error. Needs `make build` to have run, and python3.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold= dim= green= red= plain=
fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
typed() { printf '%s$ %s%s\n' "$dim" "$*" "$plain"; }
# words quotes those that a shell would cut.
words() {
	local w out=()
	for w; do
		case $w in *[!A-Za-z0-9_./:=,%+-]*) w="'${w//\'/\'\\\'\'}'" ;; esac
		out+=("$w")
	done
	printf '%s' "${out[*]}"
}
show() { typed "$(words "$@")"; "$@"; }
proved() { printf '%s%s%s\n' "$green" "$*" "$plain"; }
die() { printf '%sdemo: %s%s\n' "$red" "$*" "$plain" >&2; exit 1; }

bin=${SLUICE_BIN:-$root/bin}
[ -x "$bin/sluice" ] || ! command -v sluice >/dev/null || bin=$(dirname "$(command -v sluice)") # installed
[ -x "$bin/sluice" ] || die "bin/sluice is missing: run make build"
export PATH=$bin:$PATH
python3 -c 'import json' 2>/dev/null || die "python3 is missing, or has no json: apt-get install python3"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")
cluster=$tmp/cluster
finish() {
	local code=$?
	trap - EXIT INT TERM
	cd /
	if [ -d "$cluster" ] && ! sluice down --now --dir "$cluster" >/dev/null 2>&1; then
		echo "demo: the cluster could not be stopped; to try again: sluice down --dir $cluster --wipe" >&2
		exit 1
	fi
	rm -rf --one-file-system "$tmp"
	exit $code
}
trap finish EXIT
trap 'printf "%sdemo: line %s failed: %s%s\n" "$red" "$LINENO" "$BASH_COMMAND" "$plain" >&2' ERR
trap 'exit 130' INT TERM

# field ID KEY gives the value of a key of scontrol show job.
field() { scontrol -o show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1; }
# until_state ID SECONDS STATE… waits until the job is in one of the states.
until_state() {
	local id=$1 end=$((SECONDS + $2)) now
	shift 2
	while now=$(field "$id" JobState); ! [[ " $* " == *" $now "* ]]; do
		[ $SECONDS -lt $end ] || die "job $id is $now, expected $*; $(sluice explain "$id")"
		sleep 0.1
	done
}
# submit NAME OPTIONS… shows an sbatch and keeps the job's id in the variable NAME.
submit() {
	local name=$1 out
	shift
	typed "sbatch $(words "$@")"
	out=$(sbatch "$@")
	echo "$out"
	printf -v "$name" '%s' "${out##* }"
}

title "A cluster on this machine: a controller and two nodes"
if [ -e /dev/nvidiactl ]; then
	show sluice up --dir "$cluster" --nodes 2
else
	show sluice up --dir "$cluster" --nodes 2 --gpus a100:4
fi
. "$cluster/env.sh"
cp -r "$root/examples/spirals" "$tmp/work"
cd "$tmp/work"
show sinfo --Node --format='%N %T %c %m %G'

title "A training job on a GPU; it keeps running during the rest of the demo"
submit training --gpus=1 train.sbatch --epochs 60
until_state "$training" 30 RUNNING
show squeue

title "GPUs: a job can open its own and no others"
cat >probe.py <<'PROBE'
"""Tries to open every GPU of the node, and says which the kernel lets this job have."""
import errno, glob, os, re, sys

opened, closed = [], []
for path in sorted(glob.glob(sys.argv[1])):
    try:
        os.close(os.open(path, os.O_RDWR))
        denied = False
    except OSError as e:
        denied = e.errno in (errno.EPERM, errno.EACCES)  # a simulated GPU has no driver behind it, which is a different error
    (closed if denied else opened).append(re.search(r"\d+$", path).group())
print(f"{os.environ.get('SLURM_GPUS_ON_NODE', 'no')} GPU requested on {os.environ['SLURMD_NODENAME']}: "
      f"opens {', '.join(opened) or 'none'}; closed {', '.join(closed) or 'none'}")
PROBE
export DEVICES="$cluster/spool/n1/gpus/nvidia[0-9]"
[ ! -e /dev/nvidiactl ] || DEVICES='/dev/nvidia[0-9]*'
submit one --wait --nodelist=n1 --output=one.out --gpus=1 --wrap 'python3 probe.py "$DEVICES"'
submit none --wait --nodelist=n1 --output=none.out --wrap 'python3 probe.py "$DEVICES"'
show cat one.out none.out
if scontrol show node n1 | grep -q 'every job can open every device'; then
	echo "Device isolation is not possible here: it needs root and cgroups."
else
	grep -q 'opens [0-9]*; closed ' one.out || die "a job with one GPU did not open exactly one: $(cat one.out)"
	grep -q 'opens none; closed [0-9]' none.out || die "a job without a GPU opened one: $(cat none.out)"
	proved "The kernel denies access to all others."
fi
typed sluice gpus
sluice gpus | awk 'NR < 7'

title "kill -9 of the controller while jobs are being submitted and run"
load=200
cat >flood.sh <<'FLOOD'
for i in $(seq "$1"); do
	sbatch --parsable --output=/dev/null --job-name=small --wrap 'echo $SLURM_JOB_ID >>ran' >>acknowledged
done
FLOOD
: >acknowledged
: >ran
typed "for i in \$(seq $load); do sbatch --parsable --wrap 'echo \$SLURM_JOB_ID >>ran' >>acknowledged; done &"
bash flood.sh $load &
flood=$!
end=$((SECONDS + 30))
while [ "$(wc -l <acknowledged)" -lt $((load / 3)) ]; do
	[ $SECONDS -lt $end ] || die "sbatch has acknowledged only $(wc -l <acknowledged) jobs"
	sleep 0.02
done
pid=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["daemons"]["ctld"]["pid"])' "$cluster/cluster.json")
show kill -9 "$pid"
echo "$(wc -l <acknowledged) jobs had been acknowledged, $(wc -l <ran) had run"
typed sluice up --dir "$cluster"
sluice up --dir "$cluster" >up.out
head -n 1 up.out
wait $flood || die "an sbatch failed"
end=$((SECONDS + 60))
while [ "$(squeue -h -n small | wc -l)" -gt 0 ]; do
	[ $SECONDS -lt $end ] || die "still waiting for $(squeue -h -n small | wc -l) jobs"
	sleep 0.2
done
acknowledged=$(sort -u acknowledged | wc -l) runs=$(wc -l <ran)
[ "$acknowledged" = $load ] || die "$acknowledged of $load submissions have an id of their own"
cmp -s <(sort acknowledged) <(sort ran) ||
	die "$acknowledged jobs were acknowledged, $runs runs counted: $(diff <(sort acknowledged) <(sort ran) | head -3)"
proved "$acknowledged jobs acknowledged, $runs runs: none lost, none twice. sbatch waited for the controller to come back."

title "Why is a job waiting?"
submit holder --job-name=holder --time=10 --exclusive --wrap 'sleep 600'
until_state "$holder" 20 RUNNING
submit waits --job-name=both --time=5 --nodes=2 --exclusive --wrap true
end=$((SECONDS + 20))
until why=$(field "$waits" Reason); [ "$why" = Resources ] || [ "$why" = Priority ]; do
	[ $SECONDS -lt $end ] || die "job $waits: $(sluice explain "$waits")"
	sleep 0.1
done
show sluice explain "$waits" | tee explained
grep -q '^reason: ' explained && grep -q '^expected start: ' explained || die "no reason, or no expected start"
typed "sbatch --gpus-per-node=999 --wrap true"
if sbatch --gpus-per-node=999 --wrap true >refused 2>&1; then die "a request that cannot be met was accepted"; fi
cat refused
scancel "$waits" "$holder"

title "How the jobs ended"
until_state "$training" 60 COMPLETED
show tail -n 2 "$(field "$training" StdOut)"
show sacct -X -j "$training,$one,$none,$holder" --format=JobID,JobName%10,State%16,Elapsed,AllocTRES%-70,ExitCode
ended=$(sacct -X -n -P --format=State --name=small | sort | uniq -c | sed 's/^ *//')
[ "$ended" = "$load COMPLETED" ] || die "sacct says of the $load small jobs: $ended"
proved "The training job was not affected by the kill, and sacct has all $load small jobs as COMPLETED."

title "Stopping the cluster"
name=$(sed -n 's/^ClusterName=//p' "$SLURM_CONF")
show sluice down --dir "$cluster"
left=()
for p in /proc/[0-9]*; do
	if { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -qF "$tmp"; then left+=("process ${p#/proc/}"); fi
done
while read -r dir; do left+=("cgroup $dir"); done < <(find /sys/fs/cgroup -type d -path "*/sluice/$name*" 2>/dev/null)
while read -r _ at _; do left+=("mount $at"); done < <(grep -F " $tmp" /proc/self/mounts || true)
[ ${#left[@]} = 0 ] || die "left behind: ${left[*]}"
proved "Nothing is left behind: no process, no cgroup, no mount. The demo took $SECONDS seconds."
