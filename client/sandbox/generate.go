package sandbox

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"unicode"
)

// MaxNodes bounds --nodes: each node is a process.
const MaxNodes = 256

// machine has the resources for the generated configuration.
type machine struct {
	hostname  string
	cpus      int
	memoryMiB int
}

func thisMachine() (machine, error) {
	host, err := shortHostname()
	if err != nil {
		return machine{}, err
	}
	mem, err := totalMemoryMiB()
	return machine{hostname: host, cpus: runtime.NumCPU(), memoryMiB: mem}, err
}

func shortHostname() (string, error) {
	h, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cannot find this machine's name: %w", err)
	}
	short, _, _ := strings.Cut(h, ".")
	return short, nil
}

func totalMemoryMiB() (int, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("cannot find the size of this machine's memory: %w", err)
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if f := strings.Fields(sc.Text()); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.Atoi(f[1])
			return kib / 1024, err
		}
	}
	return 0, errors.New("cannot find the size of this machine's memory: /proc/meminfo has no MemTotal")
}

// MaxPretended bounds --pretend: each node is a connection, with descriptors on both sides.
const MaxPretended = 65536

// generate writes DIR/slurm.conf and DIR/cgroup.conf for n nodes, real or simulated. Existing files are kept, because the user may
// have edited them.
func (d Dir) generate(n int, pretend bool) error {
	if _, err := os.Stat(d.ownConf()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.ContainsFunc(string(d), func(c rune) bool { return c == '"' || unicode.IsControl(c) }) {
		return fmt.Errorf("cannot write %q into slurm.conf, which cannot contain quotes and control characters; give another --dir",
			string(d))
	}
	m, err := thisMachine()
	if err != nil {
		return err
	}
	ports := n + 1
	if pretend {
		ports = 1
	}
	port, err := freePorts(ports)
	if err != nil {
		return err
	}
	who, err := user.Current()
	if err != nil {
		return fmt.Errorf("cannot look up the current user: %w", err)
	}
	cgroup := "# Cores are shared by all nodes of this machine, so jobs are not tied to some of them.\nConstrainCores=" + yesNo(n == 1) +
		"\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
	if err := replaceFile(d.join("cgroup.conf"), []byte(cgroup)); err != nil {
		return err
	}
	container := "# Each job has its own /dev/shm. /tmp too, with a BasePath on a disk: Dirs=/tmp,/dev/shm AutoBasePath=true\n" +
		"Dirs=/dev/shm\n"
	if os.Geteuid() == 0 {
		if err := replaceFile(d.join("job_container.conf"), []byte(container)); err != nil {
			return err
		}
	}
	text := d.slurmConf(m, n, port, who.Username)
	if pretend {
		text = d.pretendConf(m, n, port, who.Username)
	}
	return replaceFile(d.ownConf(), []byte(text))
}

// quoted quotes a path for slurm.conf.
func quoted(path string) string {
	if strings.ContainsAny(path, " \t#\\") {
		return `"` + path + `"`
	}
	return path
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// maxArraySize allows arrays of 100,000 tasks instead of Slurm's default of 1,000.
const maxArraySize = 100001

// slurmConf returns a configuration in which every node has all CPUs of the machine and a share of its memory.
func (d Dir) slurmConf(m machine, n, port int, user string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	names, ports := "n1", strconv.Itoa(port+1)
	if n > 1 {
		names, ports = fmt.Sprintf("n[1-%d]", n), fmt.Sprintf("[%d-%d]", port+1, port+n)
	}
	line("# Written by `sluice up --nodes %d`; edit it and type `scontrol reconfigure`, or `sluice up` again.", n)
	line("ClusterName=%s", d.clusterName())
	line("SlurmctldHost=%s(127.0.0.1)", m.hostname)
	line("SlurmctldPort=%d", port)
	line("SlurmUser=%s", user)
	line("SlurmdUser=%s", user)
	line("StateSaveLocation=%s", quoted(d.state()))
	line("SlurmdSpoolDir=%s", quoted(d.spool("%n")))
	line("SlurmctldLogFile=%s", quoted(d.log("ctld")))
	line("SlurmdLogFile=%s", quoted(d.log("noded.%n")))
	line("# Several nodes share this machine: each has all its CPUs, as configured.")
	if os.Geteuid() == 0 { // other users cannot create namespaces, and have no other users' jobs
		line("SlurmdParameters=config_overrides,private_ipc")
		line("JobContainerType=job_container/tmpfs")
	} else {
		line("SlurmdParameters=config_overrides")
	}
	line("SelectType=select/cons_tres")
	line("SelectTypeParameters=CR_Core_Memory")
	line("TaskPlugin=task/cgroup")
	line("MaxArraySize=%d", maxArraySize)
	line("DefMemPerCPU=%d", max(1, min(1024, m.memoryMiB/n/m.cpus)))
	line("ReturnToService=2")
	line("SlurmdTimeout=30")
	line(
		"NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%s CPUs=%d Boards=1 SocketsPerBoard=1 CoresPerSocket=%d ThreadsPerCore=1 "+
			"RealMemory=%d State=UNKNOWN",
		names, m.hostname, ports, m.cpus, m.cpus, max(1, m.memoryMiB/n))
	line("PartitionName=debug Nodes=%s Default=YES DefaultTime=1:00:00 MaxTime=INFINITE State=UP", names)
	return b.String()
}

// pretendConf returns a configuration of simulated nodes.
func (d Dir) pretendConf(m machine, n, port int, user string) string {
	names := "n1"
	if n > 1 {
		names = fmt.Sprintf("n[1-%d]", n)
	}
	return fmt.Sprintf(`# Written by `+"`sluice up --pretend %d`; edit it and type `scontrol reconfigure`, or `sluice up` again."+`
ClusterName=%s
SlurmctldHost=%s(127.0.0.1)
SlurmctldPort=%d
SlurmUser=%s
SlurmdUser=%s
StateSaveLocation=%s
SlurmdSpoolDir=%s
SlurmctldLogFile=%s
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1024
MaxArraySize=%d
MaxJobCount=200000
ReturnToService=2
# These nodes are simulated, with the hardware defined here.
NodeName=%s CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES DefaultTime=1:00:00 MaxTime=INFINITE State=UP
`, n, d.clusterName(), m.hostname, port, user, user, quoted(d.state()), quoted(d.spool("%n")), quoted(d.log("ctld")), maxArraySize, names)
}

// clusterName is "sluice" in the default directory. Elsewhere it depends on the directory, because a cluster's cgroups are named
// after it.
func (d Dir) clusterName() string {
	if string(d) == DefaultDir() {
		return "sluice"
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(d))
	return "sluice-" + hex.EncodeToString(sum.Sum(nil))
}

// Generated ports are below the kernel's ephemeral ports (ip_local_port_range: 32768).
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts finds n consecutive loopback ports. It starts at a random one, so that two clusters started at once are unlikely to
// choose the same.
func freePorts(n int) (int, error) {
	for range 100 {
		base := firstPort + rand.IntN(lastPort-firstPort-n)
		if portsFree(base, n) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("cannot find %d consecutive free ports between %d and %d", n, firstPort, lastPort)
}

func portsFree(base, n int) bool {
	for p := base; p < base+n; p++ {
		if portBusy(p) != nil {
			return false
		}
	}
	return true
}

// portBusy tries to listen on a loopback port.
func portBusy(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
