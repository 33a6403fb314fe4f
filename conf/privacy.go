package conf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Privacy holds the words of SlurmdParameters that isolate jobs and restrict privileges (docs/isolation.md). They are Sluice's own.
type Privacy struct {
	IPC          bool // private_ipc: an IPC namespace for each job
	NoNewPrivs   bool // no_new_privs: set-user-ID programs grant no privileges
	Bounded      bool // capabilities=: only these can be gained
	Capabilities uint64
}

// JobContainer is a line of job_container.conf.
type JobContainer struct {
	Nodes    []string // nil: all nodes without a line of their own
	BasePath string
	AutoBase bool
	Dirs     []string

	autoGiven bool
	at        place
}

// capabilityNames are the names in capabilities(7) without "CAP_", ordered by number.
var capabilityNames = strings.Fields(`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
	net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin
	sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog
	wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore`)

// readPrivacy reads the words of SlurmdParameters that Privacy holds.
func (l *loader) readPrivacy() {
	p := l.c.SlurmdParameters
	l.c.Privacy.IPC, l.c.Privacy.NoNewPrivs = p.Has("private_ipc"), p.Has("no_new_privs")
	if !p.Has("capabilities") {
		return
	}
	list := p.Get("capabilities")
	l.c.Privacy.Bounded = true
	for name := range strings.SplitSeq(strings.ToLower(list), "+") {
		n := slices.Index(capabilityNames, strings.TrimPrefix(name, "cap_"))
		switch {
		case n >= 0:
			l.c.Privacy.Capabilities |= 1 << n
		case list != "none":
			l.fault(l.at("SlurmdParameters"), "write none, or names of capabilities(7) with + between them",
				"SlurmdParameters=capabilities: unknown capability %.40q", name)
		}
	}
}

const whyNoScripts = "no scripts are run for it; use Prolog and Epilog"

var jobContainerKeys = recordKeys(func() []recordKey[JobContainer] {
	return []recordKey[JobContainer]{
		{name: "AutoBasePath", set: func(j *JobContainer, v string) error {
			j.autoGiven = true
			return readBool(&j.AutoBase, v)
		}},
		{name: "BasePath", set: func(j *JobContainer, v string) error {
			if v != "none" && (!filepath.IsAbs(v) || filepath.Clean(v) == "/") {
				return fmt.Errorf("%.100q is neither the absolute path of a directory nor none", v)
			}
			j.BasePath = filepath.Clean(v)
			return nil
		}},
		{name: "Dirs", set: func(j *JobContainer, v string) error {
			j.Dirs = nil
			for dir := range strings.SplitSeq(v, ",") {
				if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
					return fmt.Errorf("%.100q is not the absolute path of a directory", dir)
				}
				j.Dirs = append(j.Dirs, filepath.Clean(dir))
			}
			return nil
		}},
		{name: "Shared", why: "mounts on the node always appear in running jobs, mounts of jobs never on the node",
			set: func(j *JobContainer, v string) error { return readBool(new(bool), v) }},
		{name: "EntireStepInNS", why: "a job's files are opened in its namespace; the process that monitors the job stays outside",
			set: func(j *JobContainer, v string) error { return readBool(new(bool), v) }},
		{name: "InitScript", why: whyNoScripts},
		{name: "CloneNSScript", why: whyNoScripts},
		{name: "CloneNSScript_Wait", why: whyNoScripts},
		{name: "CloneNSEpilog", why: whyNoScripts},
		{name: "CloneNSEpilog_Wait", why: whyNoScripts},
	}
})

// wantsJobContainers reports whether slurm.conf enables job_container.conf. 25.11 renamed the key, but not the file.
func (l *loader) wantsJobContainers() bool {
	return strings.EqualFold(strings.TrimPrefix(strings.ToLower(l.c.JobContainerType), "job_container/"), "tmpfs") ||
		strings.EqualFold(strings.TrimPrefix(strings.ToLower(l.c.NamespaceType), "namespace/"), "tmpfs")
}

// readJobContainers reads job_container.conf if slurm.conf enables it.
func (l *loader) readJobContainers() {
	l.readPrivacy()
	if !l.wantsJobContainers() {
		return
	}
	key := "JobContainerType"
	if l.c.JobContainerType == "" {
		key = "NamespaceType"
	}
	path := l.optional("job_container.conf", l.jobContainerLine)
	if path == "" {
		path = filepath.Join(filepath.Dir(l.c.Path), "job_container.conf")
		l.fault(l.at(key), "write it beside slurm.conf", "%s=tmpfs needs %s, which does not exist", key, path)
		return
	}
	all := l.allNodes()
	for _, j := range l.c.JobContainers {
		if !j.autoGiven {
			j.AutoBase = all != nil && all.AutoBase
		}
		disk := func(dir string) bool { return dir != "/dev/shm" }
		switch {
		case j.BasePath == "" && slices.ContainsFunc(j.Dirs, disk):
			l.fault(j.at, "add BasePath=, or Dirs=/dev/shm", "no BasePath for %s", strings.Join(j.Dirs, ","))
		case slices.Contains(j.Dirs, j.BasePath):
			l.fault(j.at, "use another directory", "BasePath=%s is one of Dirs", j.BasePath)
		}
		j.checkNested(l)
	}
}

// checkNested rejects nested directories: the outer one would hide the inner one or its replacement. Slurm, too, detects this, but
// only when it launches the job.
func (j *JobContainer) checkNested(l *loader) {
	for i, dir := range j.Dirs {
		for k, other := range j.Dirs {
			if i != k && strings.HasPrefix(dir+"/", other+"/") {
				if dir != other || i > k {
					l.fault(j.at, "leave it out: everything in "+other+" is the job's own", "Dirs: %s is in %s", dir, other)
				}
			}
		}
		if len(j.Dirs) > 1 && strings.HasPrefix(j.BasePath, dir+"/") {
			l.fault(j.at, "use another directory", "BasePath=%s is in %s, one of Dirs, and would be hidden by it", j.BasePath, dir)
		}
	}
}

// allNodes returns the line without NodeName; its settings may be spread over several lines.
func (l *loader) allNodes() *JobContainer {
	for _, j := range l.c.JobContainers {
		if j.Nodes == nil {
			return j
		}
	}
	return nil
}

func (l *loader) jobContainerLine(pairs []pair) {
	at := pairs[0].place
	if !strings.EqualFold(pairs[0].key, "NodeName") {
		j := l.allNodes()
		if j == nil {
			j = &JobContainer{Dirs: []string{"/tmp", "/dev/shm"}, at: at}
			l.c.JobContainers = append(l.c.JobContainers, j)
		}
		readRecord(l, "job_container.conf", jobContainerKeys(), pairs, j)
		return
	}
	nodes, err := hostlist.Expand(pairs[0].value)
	if err != nil || len(nodes) == 0 {
		l.fault(at, "", "NodeName=%.100s: %v", pairs[0].value, err)
		return
	}
	j := &JobContainer{Nodes: nodes, Dirs: []string{"/tmp", "/dev/shm"}, at: at}
	readRecord(l, "job_container.conf", jobContainerKeys(), pairs[1:], j)
	l.c.JobContainers = append(l.c.JobContainers, j)
}

// JobContainer returns the line of job_container.conf for a node: the last one that names it, else the one for all nodes, else nil.
// Each node of each cluster has its own directory below BasePath, so nodes that share a machine or a file system do not collide.
func (c *Config) JobContainer(n *Node) *JobContainer {
	var found *JobContainer
	for _, j := range c.JobContainers {
		if j.Nodes == nil && found == nil || slices.Contains(j.Nodes, n.Name) {
			found = j
		}
	}
	if found == nil || found.BasePath == "none" {
		return nil
	}
	out := *found
	if out.BasePath != "" {
		out.BasePath = filepath.Join(NodePath(out.BasePath, n), n.Name+"@"+c.ClusterName)
	}
	return &out
}

// InSight rejects a path inside a directory that is private to each job on the node: jobs could not read their scripts there.
func (c *Config) InSight(n *Node, path string) error {
	j := c.JobContainer(n)
	if j == nil {
		return nil
	}
	for _, dir := range j.Dirs {
		if rel, err := filepath.Rel(resolved(dir), resolved(path)); err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("jobs on node %s have a %s of their own (job_container.conf) and would not see their scripts in %s; "+
				"use a directory outside of %s, or take %s out of Dirs=", n.Name, dir, path, dir, dir)
		}
	}
	return nil
}

// resolved follows the symbolic links of path as far as it exists.
func resolved(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}
