package cli

// scontrolShow runs `scontrol show ENTITY [ID] …`; args start with the entity.
func scontrolShow(env *Env, opts showOptions, args []string) int {
	env.Errorf("invalid entity: %v", args)
	return 1
}
