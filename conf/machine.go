package conf

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/trusted"
)

// programs are the keys that name programs, on the controller's host or on every node.
var programs = []struct {
	key   string
	nodes bool
	what  string // consequence if it is missing
}{
	{"Prolog", true, "without it no job starts on a node"},
	{"Epilog", true, "a node without it is drained after its first job"},
	{"TaskProlog", true, "a job fails without it"},
	{"TaskEpilog", true, "it is not run"},
	{"HealthCheckProgram", true, "nodes are not checked"},
	{"RebootProgram", true, "scontrol reboot does nothing"},
	{"UnkillableStepProgram", true, "it is not run"},
	{"PrologSlurmctld", false, "no job starts"},
	{"EpilogSlurmctld", false, "it is not run"},
	{"MailProg", false, "no mail is sent"},
	{"SuspendProgram", false, "nodes are not suspended"},
	{"ResumeProgram", false, "nodes are not resumed"},
	{"ResumeFailProgram", false, "it is not run"},
	{"ResvProlog", false, "it is not run"},
	{"ResvEpilog", false, "it is not run"},
}

// OnThisMachine reports configured programs, groups and users that this machine lacks or cannot run. Programs of nodes may exist
// only on the nodes, so none of this makes Load fail.
func (c *Config) OnThisMachine() Faults {
	var out Faults
	for _, p := range programs {
		k := keys()[strings.ToLower(p.key)]
		program, given := c.raw[strings.ToLower(p.key)]
		if !given || k.why != "" {
			continue
		}
		if why := notRunnable(program); why != "" {
			help := p.what
			if p.nodes {
				help += "; it must exist on every node"
			}
			at := c.setAt[strings.ToLower(p.key)]
			out.add(Fault{File: at.file, Line: at.line, Msg: p.key + "=" + program + ": " + why, Help: help})
		}
	}
	if _, ok := passwd.User(c.SlurmUser); !ok {
		at := c.setAt["slurmuser"]
		out.add(Fault{File: at.file, Line: at.line, Msg: "SlurmUser=" + c.SlurmUser + " is not a user on this machine",
			Help: "create the user; the controller does not start without it"})
	}
	for _, p := range c.Partitions {
		for _, name := range p.AllowGroups {
			if _, _, ok := passwd.Group(name); !ok && !strings.EqualFold(name, "ALL") {
				out.add(Fault{File: p.File, Line: p.Line, Msg: "partition " + p.Name + ": AllowGroups names " + name +
					", which is not a group on this machine",
					Help: "create the group, or remove the name, which admits nobody"})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(slices.Index(c.Files, a.File), slices.Index(c.Files, b.File)), cmp.Compare(a.Line, b.Line))
	})
	return out
}

// JobSubmitScript returns the path of job_submit.lua, beside slurm.conf; "" if slurm.conf does not enable it.
func (c *Config) JobSubmitScript() string {
	if !slices.Contains(c.JobSubmitPlugins, "lua") && !slices.Contains(c.JobSubmitPlugins, "job_submit/lua") {
		return ""
	}
	return filepath.Join(filepath.Dir(c.Path), "job_submit.lua")
}

// ScriptFault is the fault of an unusable job_submit.lua.
func (c *Config) ScriptFault(why string) Fault {
	at := c.setAt["jobsubmitplugins"]
	return Fault{File: at.file, Line: at.line, Msg: "JobSubmitPlugins=lua: " + why,
		Help: "the controller does not start without a script that it can load"}
}

// MissingPrograms reports configured programs of the controller's host that are missing, cannot be run, or can be changed by users
// other than root and owners.
func (c *Config) MissingPrograms(owners ...uint32) (out Faults) {
	for _, p := range programs {
		program, given := c.raw[strings.ToLower(p.key)]
		if !given || p.nodes || keys()[strings.ToLower(p.key)].why != "" {
			continue
		}
		why := notRunnable(program)
		if why == "" && !strings.ContainsAny(program, "*? [") {
			if _, err := trusted.Path(program, owners...); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			at := c.setAt[strings.ToLower(p.key)]
			out.add(Fault{File: at.file, Line: at.line, Msg: p.key + "=" + program + ": " + why, Help: p.what})
		}
	}
	return out
}

// notRunnable explains why a program cannot be run, "" if it can. The pattern of a Prolog or Epilog may match several files, or
// none.
func notRunnable(program string) string {
	if !filepath.IsAbs(program) {
		return "the path is not absolute"
	}
	paths := []string{program}
	if strings.ContainsAny(program, "*?[") {
		if paths, _ = filepath.Glob(program); len(paths) == 0 {
			return "no file matches"
		}
	} else if _, err := os.Stat(program); err != nil && strings.Contains(program, " ") {
		paths = strings.Fields(program)[:1] // RebootProgram="/sbin/reboot -f"
	}
	for _, path := range slices.Sorted(slices.Values(paths)) {
		info, err := os.Stat(path)
		switch {
		case err != nil && path == program:
			return cause(err)
		case err != nil:
			return path + ": " + cause(err)
		case path == program:
			path = "it"
		}
		if info.IsDir() {
			return path + " is a directory"
		}
		if info.Mode()&0o111 == 0 {
			return path + " is not executable; chmod +x"
		}
	}
	return ""
}
