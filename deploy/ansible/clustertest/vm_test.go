package clustertest

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

var emulate = flag.Bool("vm", false, "roll out to an emulated machine as well, whose kernel has cgroup v2 alone: make test-cluster VM=1")

// plug brings up the network of an emulated host: its kernel has the driver as modules, and no udev loads them. PATH ADDRESS
const plug = `import ctypes, glob, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
for name in 'virtio_ring', 'virtio', 'virtio_pci_legacy_dev', 'virtio_pci_modern_dev', 'virtio_pci', 'failover', 'net_failover', \
        'virtio_net':
    found = glob.glob('/usr/lib/modules/%s/kernel/**/%s.ko' % (os.uname().release, name), recursive=True)
    with open(found[0], 'rb') as f:
        if libc.syscall(313, f.fileno(), b'', 0) and ctypes.get_errno() != 17:
            sys.exit('cannot load %s: %s' % (found[0], os.strerror(ctypes.get_errno())))
subprocess.check_call(['ip', 'address', 'add', sys.argv[1], 'dev', 'eth0'])
subprocess.check_call(['ip', 'link', 'set', 'eth0', 'up'])
`

// emulate is boot for a machine with a kernel of its own, two processors and 1 GiB. Its clock is late by so much.
func (b *bed) emulate(h *host, late time.Duration) *host {
	b.t.Helper()
	tool := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			b.t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, &said)
		}
		return strings.TrimSpace(string(out))
	}
	kernel, modules := tool("../../../.ci/vm/kernel"), tool("../../../.ci/vm/kernel", "--modules")
	addr := network + strconv.Itoa(len(b.hosts)+1)
	files := b.files(h, map[string]string{
		"/usr/local/sbin/plug": plug,
		"/etc/systemd/system/plug.service": "[Unit]\nDescription=The network\nBefore=network.target ssh.service\n[Service]\nType=oneshot\n" +
			"RemainAfterExit=yes\nExecStart=/usr/bin/python3 /usr/local/sbin/plug " + addr + "/24\n[Install]\nWantedBy=multi-user.target\n",
		"/etc/fstab": "",
	})
	units := filepath.Join(files, "etc/systemd/system")
	tool("rm", filepath.Join(units, "multi-user.target.wants/systemd-networkd.service"))
	tool("ln", "-s", "../plug.service", filepath.Join(units, "multi-user.target.wants/"))
	tool("ln", "-s", "/dev/null", filepath.Join(units, "serial-getty@ttyS0.service")) // which waits for udev
	for i, name := range []string{"alice", "bob"} {
		home := filepath.Join(files, "home", name) // of its own: nothing is shared with an emulated machine
		tool("mkdir", "-p", home)
		tool("chown", strconv.Itoa(2001+i), home)
	}
	disk := filepath.Join(b.t.TempDir(), "disk")
	tool("./image", b.root, files, modules, disk)
	tap := "vb-" + h.name
	line := "ip tuntap add dev " + tap + " mode tap && ip link set " + tap + " up master " + bridge
	if out, err := b.inside("sh", "-c", line).CombinedOutput(); err != nil {
		b.t.Fatalf("cannot plug %s in: %s", h.name, out)
	}
	// As in .ci/vm/run, which says why.
	h.cmd = b.inside("qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max,-erms,-fsrm,-la57,-smap,-smep", "-smp", "2",
		"-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+disk, "-device", "nvme,drive=disk,serial=1",
		"-netdev", "tap,id=net,script=no,downscript=no,ifname="+tap, "-device", "virtio-net-pci,netdev=net,romfile=",
		"-rtc", "base="+time.Now().UTC().Add(-late).Format("2006-01-02T15:04:05"),
		"-kernel", kernel, "-append", "root=/dev/nvme0n1 rw console=ttyS0 quiet loglevel=3 clearcpuid=erms,fsrm,rep_good mitigations=off "+
			"init_on_alloc=0 apparmor=0 nokaslr rcupdate.rcu_expedited=1 random.trust_cpu=on systemd.firstboot=off")
	h.cmd.Stdout, h.cmd.Stderr = h.said, h.said
	h.done = start(b.t, h.cmd)
	b.t.Cleanup(func() { _ = h.cmd.Process.Kill(); <-h.done })
	return h
}

// TestEmulated rolls out to a compute node that is an emulated machine with cgroup v2 alone, where jobs are really confined.
func TestEmulated(t *testing.T) {
	root := needs(t)
	switch {
	case !*emulate:
		t.Skip("emulates a machine, which takes minutes more: -vm, or make test-cluster VM=1")
	case !isChosen("emulated"):
		t.Skip("left out (-steps)")
	case runtime.GOARCH != "amd64":
		t.Skipf("the emulated machine is an x86_64, this one is %s", runtime.GOARCH)
	}
	for tool, from := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: apt-get install %s", tool, from)
		}
	}
	s := &site{bed: newBed(t, root), head: &host{name: "head"}, login: &host{name: "login1"}, n1: &host{name: "vm1"}}
	began := time.Now()
	s.emulate(s.n1, time.Hour)
	for _, h := range []*host{s.head, s.login} {
		s.boot(h, nil)
	}
	for _, h := range s.hosts {
		h.up()
	}
	t.Logf("emulated: booted after %v", time.Since(began).Round(time.Second))
	inv := s.write(inventory{groups: map[string][]string{"controller": {s.head.line()}, "login": {s.login.line()}, "nodes": s.lines(s.n1)},
		vars: map[string]string{"test": "sluice_packages: " + s.debs + "\nsluice_node_patience: 240\n"}})
	step(t, "emulated: a wrong clock", func() {
		s.refused(s.play(inv, "site.yml", "--tags=always"), "vm1", "seconds behind that of the controller head", "timedatectl set-ntp true")
		s.n1.do("root", fmt.Sprintf("date -s @%d", time.Now().Unix()))
	})
	step(t, "emulated: rollout", func() { s.good(inv, "site.yml") })
	step(t, "emulated: jobs are confined", s.confined)
}

// confined has jobs look at what they may use.
func (s *site) confined() {
	// out is what a job of alice's says, on the node's own disk, when it has ended so.
	out := func(state, args, script string) string {
		id := s.submit("--output=/tmp/%j.out " + args + " --wrap '" + script + "'")
		s.jobState(id, state)
		return s.n1.do("root", "cat /tmp/"+id+".out")
	}
	kind := s.n1.do("root", "stat -f -c %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers")
	if !strings.HasPrefix(kind, "cgroup2fs\n") || !strings.Contains(kind, "memory") {
		s.t.Fatalf("the machine is to have cgroup v2 alone: %s", kind)
	}
	const hog = `python3 -c "import sys; x = bytearray(int(sys.argv[1]) << 20); print(len(x) >> 20)"`
	if got := out("COMPLETED", "--mem=200", hog+" 120"); got != "120" {
		s.t.Errorf("a job within its memory says %q", got)
	}
	if got := out("OUT_OF_MEMORY", "--mem=100", hog+" 300; true"); strings.Contains(got, "300") {
		s.t.Errorf("a job with 100 MiB has got 300: %q", got)
	}
	const look = `nproc; cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/cpuset.cpus.effective 2>/dev/null || ` +
		`sed -n "s/Cpus_allowed_list:\t//p" /proc/self/status`
	holder := s.submit("-c 1 --mem=50 --output=/tmp/%j.out --wrap 'sed -n \"s/Cpus_allowed_list:\t//p\" /proc/self/status; sleep 10000'")
	s.jobState(holder, "RUNNING")
	theirs := s.n1.until("a job's CPU", "root", "cat /tmp/"+holder+".out", func(out string) bool { return out != "" })
	mine := strings.Fields(out("COMPLETED", "-c 1 --mem=50", look))
	if len(mine) != 2 || mine[0] != "1" || mine[1] == theirs || !strings.Contains("0 1", mine[1]) || !strings.Contains("0 1", theirs) {
		s.t.Errorf("of two CPUs one job has %q, and the other one %v (nproc, CPU)", theirs, mine)
	}
	s.login.do("alice", "scancel "+holder)

	// Simulated GPUs are real device files: nobody answers (ENXIO) where a job may open one, EPERM where not. A job's own begin with 0.
	const open = `for f in /var/lib/sluice/noded/gpus/nvidia[0-9]; do (: <>"$f") 2>&1 | ` +
		`grep -o -e "device or address" -e "not permitted" | sed "s/^/${f##*/} /"; done; echo $CUDA_VISIBLE_DEVICES`
	got := out("COMPLETED", "--gres=gpu:1 --mem=50", open)
	if got != "nvidia0 device or address\nnvidia1 not permitted\n0" && got != "nvidia0 not permitted\nnvidia1 device or address\n0" {
		s.t.Errorf("a job with one GPU of two sees %q", got)
	}
}
