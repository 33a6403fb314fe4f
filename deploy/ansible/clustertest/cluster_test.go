package clustertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"
)

var (
	wanted   = flag.Bool("cluster", false, "roll a cluster out on booted hosts: make test-cluster")
	packages = flag.String("packages", "../../../dist", "`DIR` with the packages")
	chosen   = flag.String("steps", "", "only the steps whose names match this `REGEXP`, and those that they need")
	hold     = flag.String("hold", "", "roll nothing out; keep hosts and inventory until this `FILE` is deleted")
)

// needs skips where hosts cannot be had, and says what helps.
func needs(t *testing.T) string {
	t.Helper()
	if !*wanted {
		t.Skip("boots hosts and runs Ansible, which takes minutes: make test-cluster")
	}
	if os.Geteuid() != 0 {
		t.Skip("booting hosts needs root")
	}
	for tool, from := range map[string]string{"systemd-nspawn": "systemd-container", "ansible-playbook": "ansible-core",
		"ssh": "openssh-client", "unshare": "util-linux", "ip": "iproute2"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: apt-get install %s", tool, from)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(*packages, "sluice-controller_*.deb")); len(found) != 1 {
		t.Skipf("there is not one sluice-controller_*.deb in %s: make packages", *packages)
	}
	var said strings.Builder
	cmd := exec.Command("./root")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("./root: %v: %s", err, said.String())
	}
	return strings.TrimSpace(string(out))
}

// vars are those of every inventory here: the kernel that tests run on may have given its cgroup controllers to cgroup v1.
func (b *bed) vars() string {
	return fmt.Sprintf("sluice_packages: %s\nsluice_cgroup_controllers: []\n", b.debs)
}

// site is a cluster of booted hosts and its inventory.
type site struct {
	*bed
	head, login, n1, n2, n3 *host
}

// gpus is a host's variable: simulated GPUs.
const gpus = "sluice_noded_options='--gpus a100:2'"

// inventory has these nodes; more is YAML beside vars.
func (s *site) inventory(more string, nodes ...*host) string {
	return s.write(inventory{groups: map[string][]string{"controller": {s.head.line()}, "login": {s.login.line()},
		"monitoring": {s.login.line()}, "nodes": s.lines(nodes...)}, vars: map[string]string{"test": s.vars() + more}})
}

// lines are those of nodes in an inventory.
func (s *site) lines(nodes ...*host) []string {
	lines := make([]string, len(nodes))
	for i, n := range nodes {
		lines[i] = n.line(append([]string{gpus}, n.vars...)...)
	}
	return lines
}

// unchanged fails unless a play was good and has changed nothing.
func (s *site) unchanged(r result) {
	s.t.Helper()
	if sum := r.total(); r.err != nil || sum.changed != 0 || sum.failed != 0 {
		s.t.Fatalf("run again, it changes %d things, %d failed: %v\n%s", sum.changed, sum.failed, r.err, r.out)
	}
}

// refused fails unless a host (any, for "") was stopped with these words.
func (s *site) refused(r result, host string, words ...string) {
	s.t.Helper()
	c := r.hosts[host]
	if host == "" {
		c = r.total()
	}
	if c.failed == 0 {
		s.t.Errorf("%s was not refused: %+v\n%s", host, c, r.out)
	}
	for _, w := range words {
		if !r.says(w) {
			s.t.Errorf("nobody says %q:\n%s", w, r.out)
		}
	}
}

// submit submits as alice on the login host and gives the job's id.
func (s *site) submit(args string) string {
	s.t.Helper()
	return s.login.do("alice", "sbatch --parsable "+args)
}

// state is what the controller says of a node.
func (s *site) state(node, want string) {
	s.t.Helper()
	s.head.until(node+" is "+want, "root", "sinfo -h -N -n "+node+" -o %T", func(out string) bool { return strings.HasPrefix(out, want) })
}

// jobState waits for what accounting says of a job.
func (s *site) jobState(id, want string) {
	s.t.Helper()
	s.head.until("job "+id+" is "+want, "root", "sacct -X -n -P -o State -j "+id, func(out string) bool { return out == want })
}

// isChosen is whether -steps asks for a step.
func isChosen(name string) bool { return regexp.MustCompile(*chosen).MatchString(name) }

// step is a part of a test that those after it need; it says how long it took.
func step(t *testing.T, name string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	t.Logf("%s: %v", name, time.Since(began).Round(time.Second))
	if t.Failed() {
		t.FailNow()
	}
}

func TestCluster(t *testing.T) {
	s := &site{bed: newBed(t, needs(t)), head: &host{name: "head"}, login: &host{name: "login1"}, n1: &host{name: "n1"},
		n2: &host{name: "n2"}, n3: &host{name: "n3"}}
	for _, h := range []*host{s.head, s.login, s.n1, s.n2, s.n3} {
		s.boot(h, nil)
	}
	for _, h := range s.hosts {
		h.up()
	}
	// The third node has its packages from a repository, the others from files.
	s.n3.vars = []string{"sluice_repository='" + s.serve(s.debs) + "'"}
	inv := s.inventory("", s.n1, s.n2)
	if *hold != "" {
		s.must(os.WriteFile(*hold, fmt.Appendf(nil, "net=%d\ninv=%s\ndir=%s\n", s.net, inv, s.dir), 0o644))
		for {
			if _, err := os.Stat(*hold); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	all := s.inventory("", s.n1, s.n2, s.n3)
	if !isChosen("a third node") {
		inv = all // which the steps that follow have
	}
	step := func(name string, f func()) {
		if !isChosen(name) && name != "rollout" {
			t.Logf("%s: left out (-steps)", name)
			return
		}
		step(t, name, f)
	}
	step("bad input changes nothing", s.badInput)
	step("rollout", func() { s.good(inv, "site.yml") })
	step("a second time", func() { s.unchanged(s.play(inv, "site.yml")) })
	step("an ordinary user's job", s.ordinaryUser)
	step("a third node", func() {
		s.good(all, "site.yml", "--check", "--diff", "--limit=n3")
		if out, _ := s.n3.run("root", "ls -d /etc/sluice /usr/sbin/sluice-* /etc/apt/sources.list.d/sluice.list 2>/dev/null"); out != "" {
			t.Errorf("--check has changed n3: %s", out)
		}
		for name, c := range s.good(all, "site.yml").hosts {
			if c.changed != 0 && name != "n3" {
				t.Errorf("a third node changes %d things on %s", c.changed, name)
			}
		}
		s.state("n3", "idle")
		s.unchanged(s.play(all, "site.yml", "--check", "--diff", "--limit=head,n3"))
	})
	step("monitoring", s.monitoring)
	step("logins, and what they leave", func() { s.logins(all) })
	step("rolling upgrade under a job", func() { s.upgrade(all) })
	step("controller reboots", s.reboot)
	step("a cable is cut", s.cut)
	step("strangers", func() { s.strangers(all) })
	step("backup and restore", func() { s.restore(all) })
	step("uninstall", func() { s.uninstall(all) })
}

// ordinaryUser does what a user does on a login host.
func (s *site) ordinaryUser() {
	id := s.submit("--gres=gpu:1 --output=%j.out --wrap 'echo on $SLURMD_NODENAME with GPU $CUDA_VISIBLE_DEVICES as $(id -un)'")
	s.jobState(id, "COMPLETED")
	out := s.login.until("output", "alice", "cat "+id+".out", func(out string) bool { return out != "" })
	if !strings.Contains(out, "with GPU 0 as alice") {
		s.t.Errorf("the job says %q", out)
	}
	both := s.submit("--nodes=2 --gres=gpu:2 --output=%j.out --wrap 'echo $SLURM_JOB_NUM_NODES nodes: $SLURM_JOB_NODELIST'")
	s.jobState(both, "COMPLETED")
	if out := s.login.do("alice", "cat "+both+".out"); out != "2 nodes: n[1-2]" {
		s.t.Errorf("a job over both nodes says %q", out)
	}
	// The nodes connect to srun: on the login host, in a terminal's place, and in a job, on the first of its nodes.
	const where = "srun --nodes=2 --gres=gpu:1 --label sh -c 'echo $SLURMD_NODENAME $(hostname) $CUDA_VISIBLE_DEVICES'"
	lines := func(out string) string {
		said := strings.Split(strings.TrimSpace(out), "\n")
		sort.Strings(said)
		return strings.Join(said, "\n")
	}
	const want = "0: n1 n1 0\n1: n2 n2 0"
	if out := s.login.do("alice", where); lines(out) != want {
		s.t.Errorf("srun over both nodes says %q", out)
	}
	if out, err := s.login.run("alice", "echo to all tasks | srun --nodes=2 --ntasks=2 sh -c 'cat; exit $SLURM_PROCID'"); err == nil ||
		!strings.Contains(out, "to all tasks\nto all tasks\n") {
		s.t.Errorf("srun with input, whose second task fails: %v, %q", err, out)
	}
	steps := s.submit("--nodes=2 --gres=gpu:1 --output=%j.out --wrap \"" + strings.ReplaceAll(where, "$", `\$`) + "\"")
	s.jobState(steps, "COMPLETED")
	if out := s.login.do("alice", "cat "+steps+".out"); lines(out) != want {
		s.t.Errorf("srun in a job says %q", out)
	}
	if out := s.login.do("alice", "sacct -n -P -o JobID,State,NodeList -j "+steps+".0"); out != steps+".0|COMPLETED|n[1-2]" {
		s.t.Errorf("of the step sacct says %q", out)
	}
	long := s.submit("--gres=gpu:2 --wrap 'sleep 1000'")
	s.login.until("squeue shows it running", "alice", "squeue -h -o '%i %u %T'",
		func(out string) bool { return out == long+" alice RUNNING" })
	s.login.until("sinfo", "alice", "sinfo -h -o '%P %D %T'", func(out string) bool { return strings.Contains(out, "batch* 1 mixed") })
	s.login.do("alice", "scancel "+long)
	s.jobState(long, "CANCELLED by 2001")
}

// logins to nodes are for users with a job there, and what they leave behind ends with their last job.
func (s *site) logins(inv string) {
	closed := s.inventory("sluice_pam: true\nsluice_programs: [health, gpus, leftovers]\n", s.n1, s.n2, s.n3)
	const nodes = "--limit=head,n1,n2" // the third stays open
	s.good(closed, "site.yml", nodes)
	s.unchanged(s.play(closed, "site.yml", nodes))
	s.login.do("alice", "mkdir -m 700 -p .ssh && cat >.ssh/authorized_keys <<END\n"+s.publicKey()+"\nEND")
	if out, err := s.n1.login("alice", "id -un"); err == nil || !strings.Contains(out, "you have no active jobs on this node") {
		s.t.Errorf("alice logs in on n1 without a job: %v, %s", err, out)
	}
	id := s.submit("--nodelist=n1 --wrap 'sleep 1000'")
	s.jobState(id, "RUNNING")
	out, err := s.n1.login("alice", "setsid sleep 3000 >/dev/null 2>&1 & cat /proc/$!/cgroup; echo $XDG_RUNTIME_DIR")
	if err != nil {
		s.t.Fatalf("alice cannot log in on n1, where job %s runs: %v, %s", id, err, out)
	}
	if !strings.Contains(out, "/job_"+id+".1/extern\n") {
		s.t.Errorf("what alice starts in a session is not part of job %s: %s", id, out)
	}
	if !strings.Contains(out, "/run/user/2001\n") { // pam_systemd has made the session known all the same
		s.t.Errorf("alice's session has no XDG_RUNTIME_DIR: %s", out)
	}
	if out := s.n1.do("root", "cat /proc/self/cgroup"); strings.Contains(out, "/job_") {
		s.t.Errorf("root's session is in a job: %s", out)
	}
	if out, err := s.n2.login("alice", "true"); err == nil {
		s.t.Errorf("alice logs in on n2, where no job of alice's runs: %s", out)
	}
	sleeps := "pgrep -u alice -f 'sleep 3000' || echo none"
	if found := s.n1.do("root", sleeps); found == "none" {
		s.t.Error("what alice has started does not run")
	}
	s.login.do("alice", "scancel "+id)
	s.n1.until("what alice has left is ended", "root", sleeps, func(out string) bool { return out == "none" })
	s.state("n1", "idle")
	s.good(inv, "site.yml", nodes)
	if out, err := s.n1.login("alice", "true"); err != nil {
		s.t.Errorf("logins are not open again: %v, %s", err, out)
	}
}

// badInput is what must stop before anything is changed.
func (s *site) badInput() {
	two := s.write(inventory{groups: map[string][]string{"controller": {s.head.line()}, "slurm-master": {s.login.line()}},
		vars: map[string]string{"test": s.vars()}})
	s.refused(s.play(two, "site.yml"), "head", "The inventory has 2 controllers")

	unknown := s.inventory("slurm_nodes:\n  - {name: 'n[1-2]', CPUs: 1}\n"+
		"slurm_partitions:\n  - {name: main, Nodes: ALL, Default: true}\n", s.n3)
	s.refused(s.play(unknown, "site.yml", "--check"), "n3", "node n3 is not in the configuration")

	half := filepath.Join(s.dir, "half.conf")
	s.must(os.WriteFile(half, []byte("ClusterName=lab\nSlurmctldHost=head\nNodeName=n1 CPUs=2\nPartitionName=main Nodes=n1,n"), 0o644))
	s.refused(s.play(s.inventory("sluice_slurm_conf: "+half+"\n", s.n1), "site.yml", "--limit=head"), "head",
		"The configuration is faulty and nothing was changed")
	if out, _ := s.head.run("root", "cat /etc/slurm/slurm.conf"); strings.Contains(out, "ClusterName=lab") {
		s.t.Errorf("a faulty slurm.conf was installed: %s", out)
	}
	s.refused(s.play(s.inventory("sluice_slurm_conf: "+half+".gone\n", s.n1), "site.yml", "--limit=head"), "head", "which cannot be read")

	old, full, v1, wrong := &host{name: "old"}, &host{name: "full", extra: []string{"--tmpfs=/var/spool:size=1m"}},
		&host{name: "v1", cgroupV1: true}, &host{name: "wrong"}
	s.boot(old, map[string]string{"/usr/local/bin/python2": "#!/bin/sh\necho 2.7\n"})
	for _, h := range []*host{full, v1} {
		s.boot(h, nil)
	}
	// All hosts have the machine's clock: what is wrong with this one is what its Python says.
	s.boot(wrong, map[string]string{"/usr/lib/python3/dist-packages/clock.pth": "import time; " +
		"time.time = lambda clock=time.time: clock() + 300\n"})
	for _, h := range []*host{old, full, v1, wrong} {
		h.up()
	}
	old.do("root", "chmod 755 /usr/local/bin/python2 && mv /usr/bin/python3 /usr/bin/python3.gone && "+
		"ln -s /usr/local/bin/python2 /usr/bin/python3")
	wrong.do("root", "sed -i s/alice:x:2001/alice:x:2077/ /etc/passwd && nft add table ip f && nft add chain ip f out "+
		"'{ type filter hook output priority 0; }' && nft add rule ip f out tcp dport 6817 drop")
	r := s.play(s.inventory("", s.n1, old, full, v1, wrong), "site.yml", "--tags=always")
	s.refused(r, "old", "Python 2.7 and Ansible needs 3.6 or newer")
	s.refused(r, "full", "the file system of /var/spool has 1 MiB left")
	s.refused(r, "v1", "cgroup v2 is missing")
	s.refused(r, "wrong", "user alice has uid 2077 on wrong and 2001 on head", "seconds ahead of that of the controller head",
		"port 6817 of the controller head (10.78.0.1) cannot be reached")
	if c := r.hosts["n1"]; c.failed != 0 || c.ok < 10 {
		s.t.Errorf("n1 did not go on: %+v\n%s", c, r.out)
	}
	for _, h := range []*host{old, full, v1, wrong} {
		if out, _ := h.run("root", "ls -d /etc/sluice /usr/sbin/sluice-noded 2>/dev/null"); out != "" {
			s.t.Errorf("host %s was changed: %s", h.name, out)
		}
	}
	wrong.do("root", "sed -i s/alice:x:2077/alice:x:2001/ /etc/passwd")
}

// newer makes packages of a later version from those that there are, and gives their folder.
func (s *site) newer() string {
	dir := s.t.TempDir()
	found, _ := filepath.Glob(filepath.Join(*packages, "sluice-*.deb"))
	for _, deb := range found {
		tree := s.t.TempDir()
		line := `dpkg-deb -R "$1" "$2/p" && sed -i -e "s/^Version: .*/&+newer/" -e "s/(= [^)]*/&+newer/g" "$2/p/DEBIAN/control" && ` +
			`dpkg-deb -Znone --root-owner-group -b "$2/p" "$3"`
		if out, err := exec.Command("sh", "-c", line, "sh", deb, tree, dir).CombinedOutput(); err != nil {
			s.t.Fatalf("cannot make a newer %s: %s", deb, out)
		}
	}
	return dir
}

// upgrade replaces all programs under a job that runs on.
func (s *site) upgrade(inv string) {
	id := s.submit("--gres=gpu:1 --nodelist=n1 --output=%j.out --wrap 'while [ ! -e end ]; do sleep 1; done; echo ended'")
	s.jobState(id, "RUNNING")
	pid := s.n1.do("root", "systemctl show --property=MainPID --value sluice-noded")
	newer := s.newer()
	s.serve(newer)
	s.good(inv, "upgrade.yml", "-e", "sluice_packages="+newer)
	for _, h := range []*host{s.head, s.n1, s.n2, s.n3, s.login} {
		if v := h.do("root", "dpkg-query --show --showformat='${Version}' sluice-client"); !strings.HasSuffix(v, "+newer") {
			s.t.Errorf("%s has version %s after the upgrade", h.name, v)
		}
	}
	if now := s.n1.do("root", "systemctl show --property=MainPID --value sluice-noded"); now == pid {
		s.t.Errorf("the node daemon of n1 is the one from before the upgrade")
	}
	s.login.do("alice", "touch end")
	s.jobState(id, "COMPLETED")
	if n := s.head.do("root", "sacct -X -n -P -o Restarts -j "+id); n != "0" {
		s.t.Errorf("the job was restarted %s times", n)
	}
}

// reboot is that of the controller's host, under a job.
func (s *site) reboot() {
	id := s.submit("--nodelist=n2 --output=%j.out --wrap 'while [ ! -e again ]; do sleep 1; done'")
	s.jobState(id, "RUNNING")
	_, _ = s.head.run("root", "touch /run/before; systemctl reboot")
	s.head.until("it is booted anew", "root", "test ! -e /run/before && systemctl is-active sluice-ctld",
		func(out string) bool { return out == "active" })
	s.login.do("alice", "touch again")
	s.jobState(id, "COMPLETED")
	s.state("n1", "idle")
}

// cut takes a node's network away for a while; its job runs on.
func (s *site) cut() {
	id := s.submit("--nodelist=n2 --output=%j.out --wrap 'while [ ! -e plugged ]; do sleep 1; done'")
	s.jobState(id, "RUNNING")
	link := "vb-" + s.n2.name
	if out, err := s.inside("ip", "link", "set", link, "down").CombinedOutput(); err != nil {
		s.t.Fatalf("cannot cut the cable: %s", out)
	}
	s.head.until("the controller has noticed", "root", "sinfo -h -N -n n2 -o %T",
		func(out string) bool { return strings.HasSuffix(out, "*") })
	if out, err := s.inside("ip", "link", "set", link, "up").CombinedOutput(); err != nil {
		s.t.Fatalf("cannot mend the cable: %s", out)
	}
	s.login.do("alice", "touch plugged")
	s.jobState(id, "COMPLETED")
	s.state("n2", "idle")
}

// strangers are hosts that are not let in.
func (s *site) strangers(inv string) {
	token := s.head.do("root", "sluice token create --node n3")
	s.head.do("root", "sluice node revoke n3")
	s.refused(s.play(inv, "site.yml", "--limit=n3"), "n3", "The certificate of n3 was revoked", "sluice_readmit=n3")
	s.good(inv, "site.yml", "--limit=n3", "-e", "sluice_readmit=n3")
	s.state("n3", "idle")
	s.n3.do("root", "systemctl stop sluice-noded; rm -r /etc/sluice/tls")
	again := s.head.do("root", "sluice token create --node n3")
	s.n3.do("root", "echo "+again+" | sluice-noded --join - --join-only; rm -r /etc/sluice/tls")
	for used, why := range map[string]string{token: "the join token for n3 was revoked", again: "the join token for n3 was used"} {
		s.refused(s.play(inv, "site.yml", "--limit=n3", "-e", "sluice_join_token="+used), "n3", "n3 could not join", why,
			"sluice token create --node n3")
	}
	s.good(inv, "site.yml", "--limit=n3")
	s.state("n3", "idle")
	s.unchanged(s.play(inv, "site.yml"))
}

// restore moves the controller to a new host, with what it knows.
func (s *site) restore(inv string) {
	waits := s.submit("--hold --wrap true")
	dir := s.t.TempDir()
	s.good(inv, "backup.yml", "-e", "sluice_backups="+dir)
	found, _ := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if len(found) != 1 {
		s.t.Fatalf("there are %d backups", len(found))
	}
	if at, err := os.Stat(found[0]); err != nil || at.Mode() != 0o600 || at.Size() == 0 {
		s.t.Errorf("the backup, which has the authority's key, is %v: %v", at, err)
	}
	whole, err := os.ReadFile(found[0])
	s.must(err)
	half := filepath.Join(dir, "half.tar.gz")
	s.must(os.WriteFile(half, whole[:len(whole)/2], 0o600))
	const running = "systemctl show --property=MainPID --value sluice-ctld"
	before := s.head.do("root", running)
	s.refused(s.play(inv, "restore.yml", "-e", "sluice_backup="+half, "-e", "sluice_overwrite=true"), "",
		"is no whole backup of a controller, and nothing has been changed")
	if after := s.head.do("root", running); after != before {
		s.t.Errorf("a damaged backup has stopped the controller: it was process %s and is %s", before, after)
	}
	old := s.head
	s.head = &host{name: "head2"}
	s.boot(s.head, nil).up()
	moved := s.write(inventory{groups: map[string][]string{"controller": {s.head.line()}, "old": {old.line()}, "login": {s.login.line()},
		"monitoring": {s.login.line()}, "nodes": s.lines(s.n1, s.n2, s.n3)}, vars: map[string]string{"test": s.vars()}})
	s.good(moved, "restore.yml", "-e", "sluice_backup="+found[0], "-e", "sluice_old_controller=head")
	s.login.until("the login host follows", "alice", "squeue -h -o %i", func(out string) bool { return out == waits })
	for _, n := range []string{"n1", "n2", "n3"} {
		s.state(n, "idle")
	}
	s.comesBack(old)
	s.login.do("alice", "scontrol release "+waits)
	s.jobState(waits, "COMPLETED")
	s.unchanged(s.play(moved, "site.yml"))
}

// comesBack starts the old controller, with its state from before the restore, where hosts look for the new one: none follows it.
func (s *site) comesBack(old *host) {
	const cable, refuses = "vb-head2", "has followed a controller of generation"
	link := func(state string) {
		if out, err := s.inside("ip", "link", "set", cable, state).CombinedOutput(); err != nil {
			s.t.Fatalf("cannot set the cable %s %s: %s", cable, state, out)
		}
	}
	address := func(verb string) { old.do("root", "ip address "+verb+" "+s.head.addr+"/24 dev host0") }
	link("down")
	address("add")
	old.do("root", "systemctl start sluice-ctld")
	for _, n := range []*host{s.n1, s.n2, s.n3} {
		n.until("it refuses the old controller", "root", "journalctl -u sluice-noded -g '"+refuses+"' || true",
			func(out string) bool { return strings.Contains(out, refuses) })
	}
	s.login.until("the login host refuses it, too", "alice", "sbatch --wrap true 2>&1 || true",
		func(out string) bool { return strings.Contains(out, refuses) })
	if out := old.do("root", "sinfo -h -R -o %E"); !strings.Contains(out, "Generation: ") {
		s.t.Errorf("the old controller says of its nodes: %q", out)
	}
	old.do("root", "systemctl stop sluice-ctld")
	address("del")
	link("up")
	for _, n := range []string{"n1", "n2", "n3"} {
		s.state(n, "idle")
	}
}

// uninstall leaves hosts as they were.
func (s *site) uninstall(string) {
	inv := s.inventory("", s.n1, s.n2, s.n3)
	s.refused(s.play(inv, "uninstall.yml"), "", "This removes the cluster")
	id := s.submit("--wrap 'sleep 1000'")
	s.jobState(id, "RUNNING")
	s.refused(s.play(inv, "uninstall.yml", "-e", "sluice_uninstall=yes"), "", "These jobs run: "+id)
	s.head.do("root", "systemctl stop sluice-ctld")
	s.refused(s.play(inv, "uninstall.yml", "-e", "sluice_uninstall=yes"), "", "Whether jobs run cannot be asked")
	s.head.do("root", "systemctl start sluice-ctld")
	s.login.do("alice", "scancel "+id)
	s.jobState(id, "CANCELLED by 2001")
	s.good(inv, "uninstall.yml", "-e", "sluice_uninstall=yes", "-e", "sluice_uninstall_state=true")
	for _, h := range []*host{s.head, s.n1, s.login} {
		out, _ := h.run("root", "ls -d /etc/sluice/tls /var/lib/sluice/* /usr/sbin/sluice-* /usr/bin/sinfo /etc/slurm/slurm.conf "+
			"/etc/slurm/metrics.tokens /etc/prometheus/sluice* 2>/dev/null")
		if out != "" {
			s.t.Errorf("%s is left on %s", out, h.name)
		}
	}
	s.unchanged(s.play(inv, "uninstall.yml", "-e", "sluice_uninstall=yes", "-e", "sluice_uninstall_state=true"))
}
