package cli

import "fmt"

// sluice runs `sluice VERB …`: any of Slurm's commands by name.
func sluice(env *Env, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		sluiceHelp(env)
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ProcessEnv(c.name), args[1:])
		}
	}
	fmt.Fprintf(env.Stderr, "sluice: unknown command %q; try `sluice help`\n", args[0])
	return 1
}

func sluiceHelp(env *Env) {
	fmt.Fprintln(env.Stdout, "usage: sluice COMMAND [arguments]\n\nSlurm's commands (also installed under their own names):")
	for _, c := range commands() {
		fmt.Fprintf(env.Stdout, "  %-10s %s\n", c.name, c.help)
	}
}
