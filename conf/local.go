package conf

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"
)

// Local describes a cluster on one machine: Nodes nodes n1, n2, … that share
// this host, and one partition, debug.
type Local struct {
	ClusterName string // default "sluice"
	Hostname    string // of this machine; default "localhost"
	Addr        string // where the daemons listen; default 127.0.0.1
	SlurmUser   string // default root

	Nodes         int
	CPUs          int // of each node
	RealMemoryMiB uint64
	// ConfigOverrides takes CPUs and RealMemoryMiB as they are, even where the
	// machine has less.
	ConfigOverrides bool

	Dir       string // state, spool and logs lie below it
	CtldPort  int
	NodedPort int // of n1; the others follow
}

// WriteLocal writes a slurm.conf for l. Load accepts what it writes.
func WriteLocal(w io.Writer, l Local) error {
	switch {
	case l.Nodes < 1 || l.Nodes > 1000:
		return fmt.Errorf("cannot write a configuration for %d nodes on one machine: give 1 to 1000", l.Nodes)
	case l.CPUs < 1 || l.RealMemoryMiB < 1:
		return fmt.Errorf("cannot write a configuration for nodes with %d CPUs and %d MiB of memory: give at least 1", l.CPUs, l.RealMemoryMiB)
	case l.CtldPort < 1 || l.NodedPort < 1 || l.CtldPort > 65535 || l.NodedPort+l.Nodes-1 > 65535:
		return fmt.Errorf("cannot write a configuration with ports %d and %d for %d nodes: they have to be between 1 and 65535", l.CtldPort, l.NodedPort, l.Nodes)
	case l.CtldPort >= l.NodedPort && l.CtldPort < l.NodedPort+l.Nodes:
		return fmt.Errorf("cannot write a configuration: the controller's port %d is among those of the nodes from %d", l.CtldPort, l.NodedPort)
	case !filepath.IsAbs(l.Dir) || strings.ContainsAny(l.Dir, "\"#\\") || strings.ContainsFunc(l.Dir, unicode.IsControl):
		return fmt.Errorf("cannot write a configuration for the folder %q: give an absolute path without quotes, '#' and backslashes", l.Dir)
	}
	or := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	host, addr := or(l.Hostname, "localhost"), or(l.Addr, "127.0.0.1")
	nodes, ports := fmt.Sprintf("n[1-%d]", l.Nodes), fmt.Sprintf("[%d-%d]", l.NodedPort, l.NodedPort+l.Nodes-1)
	if l.Nodes == 1 {
		nodes, ports = "n1", fmt.Sprint(l.NodedPort)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# A cluster on one machine, written by sluice up. Change it as you like; it is read, not rewritten.\n")
	fmt.Fprintf(&b, "ClusterName=%s\nSlurmctldHost=%s(%s)\nSlurmUser=%s\n", or(l.ClusterName, "sluice"), host, addr, or(l.SlurmUser, "root"))
	fmt.Fprintf(&b, "SlurmctldPort=%d\nSlurmdPort=%d\n", l.CtldPort, l.NodedPort)
	fmt.Fprintf(&b, "StateSaveLocation=\"%[1]s/state\"\nSlurmdSpoolDir=\"%[1]s/spool/%%n\"\n", l.Dir)
	fmt.Fprintf(&b, "SlurmctldLogFile=\"%[1]s/log/ctld.log\"\nSlurmdLogFile=\"%[1]s/log/noded.%%n.log\"\n", l.Dir)
	fmt.Fprintf(&b, "SchedulerType=sched/backfill\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n")
	fmt.Fprintf(&b, "ReturnToService=2\nSlurmdTimeout=60\nPropagateResourceLimits=NONE\n")
	if l.ConfigOverrides {
		fmt.Fprintf(&b, "SlurmdParameters=config_overrides\n")
	}
	fmt.Fprintf(&b, "DefMemPerCPU=%d\n\n", max(1, l.RealMemoryMiB/uint64(l.CPUs)))
	fmt.Fprintf(&b, "NodeName=%s NodeHostname=%s NodeAddr=%s Port=%s CPUs=%d Boards=1 SocketsPerBoard=1 CoresPerSocket=%d ThreadsPerCore=1 RealMemory=%d State=UNKNOWN\n",
		nodes, host, addr, ports, l.CPUs, l.CPUs, l.RealMemoryMiB)
	fmt.Fprintf(&b, "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
	_, err := w.Write(b.Bytes())
	return err
}
