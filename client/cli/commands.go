package cli

// row is one row of the dispatch table.
type row struct {
	name string
	run  func(env *Env, args []string) int
	help string // one line for `sluice help`
	big  bool   // may have to hold the whole queue
}

// commands lists Slurm's commands. It is a function and not a variable so that nothing is built when a process starts.
func commands() []row {
	return []row{
		{"sbatch", sbatchCommand, "submit a batch script", false},
		{"scancel", scancel, "cancel or signal jobs", false},
		{"squeue", squeue, "show jobs", true},
		{"sinfo", sinfo, "show partitions and nodes", true},
		{"sprio", sprio, "show what the priorities of waiting jobs are made of", true},
		{"scontrol", scontrol, "show and change the state of jobs, nodes and partitions", true},
	}
}
