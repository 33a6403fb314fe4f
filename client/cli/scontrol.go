package cli

// scontrol runs one scontrol command line.
func scontrol(env *Env, args []string) int {
	if len(args) > 0 && args[0] == "show" {
		return scontrolShow(env, showOptions{}, args[1:])
	}
	return 1
}

// showOptions are scontrol's flags that change what show prints.
type showOptions struct {
	oneLine bool // -o
	details int  // -d, counted
	all     bool // -a
	future  bool // -F
	quiet   bool // -Q
	verbose int  // -v
	hide    bool // --hide
}
