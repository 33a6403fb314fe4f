package gpu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Processes looks up processes of this machine.
type Processes interface {
	// Ours reports whether a process belongs to a job of this node.
	Ours(pid int) bool
	// Who returns a process's program name and user; ok is false if the process has gone.
	Who(pid int) (name, user string, ok bool)
}

// services are programs that have a GPU open for others: the daemons of MPS and of monitoring. They do not count as use.
var services = []string{"nvidia-cuda-mps", "nv-hostengine", "dcgm", "nvidia-persiste", "nvidia-smi"}

// foreign describes a process that uses a GPU without belonging to a job, and the number of others; empty: none.
func foreign(list []Process, who Processes) string {
	var first string
	n := 0
	pids := map[int]bool{}
	for _, p := range list {
		if pids[p.PID] || p.PID <= 0 || who.Ours(p.PID) {
			continue
		}
		pids[p.PID] = true
		name, owner, ok := who.Who(p.PID)
		if !ok || slices.ContainsFunc(services, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s (pid %d) of %s", name, p.PID, owner)
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s and %d more", first, n-1)
	}
	return first
}

// Proc implements Processes with /proc. A process belongs to a job of this node if it is in a cgroup below Cgroup or, without
// cgroups, descends from a shim of this node: a process of the node daemon's user with "stepd" and Spool among its arguments.
type Proc struct {
	Root   string // "" = /proc
	Cgroup string // "sluice/CLUSTER/NODE"
	Spool  string
}

func (p Proc) file(pid int, name string) string {
	root := p.Root
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(root, strconv.Itoa(pid), name)
}

// Ours implements Processes.
func (p Proc) Ours(pid int) bool {
	if b, err := os.ReadFile(p.file(pid, "cgroup")); err == nil && p.Cgroup != "" && bytes.Contains(b, []byte("/"+p.Cgroup+"/")) {
		return true
	}
	for range 64 { // ancestors
		b, err := os.ReadFile(p.file(pid, "cmdline"))
		if err != nil {
			return false
		}
		argv := strings.Split(string(b), "\x00")
		if slices.Contains(argv, "stepd") && slices.Contains(argv, p.Spool) && p.Spool != "" && p.owner(pid) == strconv.Itoa(os.Getuid()) {
			return true
		}
		if pid = p.parent(pid); pid <= 1 {
			return false
		}
	}
	return false
}

// owner returns the real user id of a process: anybody can give a process a shim's arguments.
func (p Proc) owner(pid int) string {
	b, _ := os.ReadFile(p.file(pid, "status"))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
			return f[1]
		}
	}
	return ""
}

func (p Proc) parent(pid int) int {
	b, err := os.ReadFile(p.file(pid, "stat"))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain anything, so the fields are counted from the last parenthesis.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	return ppid
}

// Who implements Processes.
func (p Proc) Who(pid int) (name, owner string, ok bool) {
	b, err := os.ReadFile(p.file(pid, "status"))
	if err != nil {
		return "", "", false
	}
	uid := ""
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Name":
			name = printable(strings.TrimSpace(value))
		case "Uid":
			uid, _, _ = strings.Cut(strings.TrimSpace(value), "\t")
		case "State":
			if strings.Contains(value, "Z") {
				return "", "", false
			}
		}
	}
	owner = "uid " + uid
	if a, ok := passwd.User(uid); ok {
		owner = a.Name
	}
	return name, owner, true
}

// printable removes control characters, which a program may put into its name, and "|".
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '|' {
			return '?'
		}
		return r
	}, s)
}
