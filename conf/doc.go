// Package conf reads slurm.conf, gres.conf, cgroup.conf, topology.conf and the other files beside them, as the manual
// pages of Slurm 22.05 describe them, with the keys that later versions added.
//
// Load gives a Config or all faults at once, each with file and line. A key that Slurm knows and Sluice has no use for
// is accepted and listed in Config.Ignored. A key that Slurm does not know is a fault, and so are contradictory values
// where Slurm would guess or overrule them.
//
// The grammars that files and command lines share have packages of their own: hostlist, timespec, tres, jobid, filename,
// container.
package conf
