// Package conf reads slurm.conf, gres.conf, cgroup.conf, topology.conf and the other files beside them, as the manual pages of
// Slurm 22.05 describe them, plus keys that later versions added.
//
// Load returns a Config, or all faults at once, each with file and line. A key of Slurm's for which Sluice has no use is accepted
// and listed in Config.Ignored. An unknown key is a fault, and so are contradictory values that Slurm would resolve silently.
//
// The grammars that files and command lines share have packages of their own: hostlist, timespec, tres, jobid, filename, container.
package conf
