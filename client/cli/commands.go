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
		{"scrontab", scrontab, "edit, show or remove your crontab: jobs that run again and again", false},
		{"sdiag", sdiag, "show what controller and scheduler have been doing", false},
		{"seff", seff, "show how much of what a job held it has used", false},
		{"sstat", sstat, "show what running steps use", false},
		{"sacctmgr", sacctmgr, "show accounts, users, associations and the like", false},
		{"sacct", sacct, "show what became of jobs, running and finished ones", false},
		{"sprio", sprio, "show what the priorities of waiting jobs are made of", true},
		{"scontrol", scontrol, "show and change the state of jobs, nodes and partitions", true},
	}
}
