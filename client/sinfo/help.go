package sinfo

const usage = `Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes] [-S fields]
             [-o format] [-O Format] [-M cluster] [-h] [--hide] [--noconvert] [--json] [--yaml]
             [--federation] [--local]
`

const help = `Usage: sinfo [OPTIONS]

Shows partitions and the state of their nodes. Nodes that look the same share a row.

Which nodes:
  -p, --partition=LIST     partitions                     -n, --nodes=HOSTS  nodes
  -t, --states=LIST        idle,mix,alloc,drain,down,…: "," or, "&" and, "~" not
  -d, --dead               those that do not respond      -r, --responding   those that do
  -R, --list-reasons       those that are down, drained or failing, with reasons
  -a, --all                partitions that are hidden, too
  -M, --clusters=NAME      this cluster, or "all"

What about them:
  -N, --Node               a row for each node            -s, --summarize    a row for each partition
  -l, --long               more columns                   -e, --exact        no "4+" for different sizes
  -o, --format=FORMAT      "%9P %.5a %N …": letters with [.][width]; %all for all
  -O, --Format=FIELDS      NodeList:20,StateLong,Gres:30,…; see sinfo(1) for the names
  -S, --sort=LETTERS       letters of -o, "-" for descending, "#P" partitions as in slurm.conf
  -h, --noheader           no header
  -i, --iterate=SECONDS    again and again
  -T, --reservation        reservations
      --json, --yaml       a document in the shape of data_parser v0.0.42

Help options:
      --help               this text
      --usage              the short one
  -V, --version            versions

Environment: SINFO_FORMAT, SINFO_PARTITION, SINFO_SORT, SINFO_ALL, SLURM_TIME_FORMAT.

Examples:
  sinfo -s                                 how full is each partition?
  sinfo -R                                 which nodes are out of service, and why?
  sinfo -N -o "%N %t %C %e %G"             every node, its CPUs (used/free/other/all), memory, GPUs
  sinfo -h -t "idle&~drain" -o %N          nodes that could start a job now
`
