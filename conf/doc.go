// Package conf reads what an administrator writes: slurm.conf, and gres.conf
// and cgroup.conf beside it, as slurm.conf(5), gres.conf(5) and cgroup.conf(5)
// of Slurm 22.05 describe them, with the keys that later versions added.
//
// Load gives a Config or all faults at once, each with file and line. A key
// that Slurm knows and Sluice has no use for is accepted and listed in
// Config.Ignored; a key that Slurm does not know is a fault; so are values that
// contradict each other where Slurm would guess or overrule them.
//
// The grammars that files and command lines share are in packages of their
// own: hostlist, timespec, tres and jobid.
package conf
