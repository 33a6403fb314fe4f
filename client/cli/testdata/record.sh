#!/bin/bash
# record.sh COMMANDS: asks the Slurm that SLURM_CONF points at and prints what it answered, in the form that the tests read:
#   $ command line        (words as for a shell)
#    1> line of stdout
#    2> line of stderr
#    = exit code          (when it is not 0)
# COMMANDS holds one command line per line. The commands run in testdata/scripts.
cd "$(dirname "$0")/scripts" || exit 1
while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  out=$(mktemp) err=$(mktemp)
  timeout 30 bash -c "$line" >"$out" 2>"$err" </dev/null
  code=$?
  printf '$ %s\n' "$line"
  sed -e 's/^/ 1> /' -e '$a\' "$out"
  sed -e 's/^/ 2> /' -e '$a\' "$err"
  [ $code = 0 ] || printf ' = %d\n' $code
  rm -f "$out" "$err"
done <"$1"
