package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestMigration takes a cluster over that runs a real Slurm, Debian's, and goes back to it.
func TestMigration(t *testing.T) {
	root := needs(t)
	if !isChosen("migration") {
		t.Skip("left out (-steps)")
	}
	m := &slurm{site: &site{bed: newBed(t, root), head: &host{name: "old1"}, login: &host{name: "front"}, n1: &host{name: "old2"}}}
	for _, h := range []*host{m.head, m.login, m.n1} {
		m.boot(h, nil)
	}
	for _, h := range m.hosts {
		h.up()
	}
	inv := m.inventory("sluice_repository: "+m.serve(m.debs)+"\n", m.n1)
	step(t, "migration: a real Slurm", m.install)
	step(t, "migration: looking changes nothing", func() { m.look(inv) })
	step(t, "migration: there", func() { m.there(inv) })
	step(t, "migration: and back", func() { m.back(inv) })
}

// slurm is a site on which Slurm runs, or ran.
type slurm struct {
	*site
	conf     string
	accounts string // what accounts says, by Slurm
}

// accounts shows who may use how much.
const accounts = `sacctmgr -nP show assoc format=account,user,share,grptres,maxjobs,qos | sort
sacctmgr -nP show qos format=name,priority,maxjobspu,maxwall | sort`

// where is what each of its jobs tells: whose commands it has, on which node it is, as whom, and whether Prolog was run.
const where = `--output=%j.out --wrap 'readlink -f $(command -v sbatch)
echo $SLURMD_NODENAME $SLURM_JOB_PARTITION $(id -un)
test -e /run/prolog.$SLURM_JOB_ID && echo prolog'`

// install makes a cluster as a site may have it: controller, node, login host, and programs of its own in Prolog and Epilog.
func (m *slurm) install() {
	m.conf = strings.Join([]string{
		"# The lab's cluster",
		"ClusterName=lab",
		"SlurmctldHost=old1(" + m.head.addr + ")",
		"AuthType=auth/munge",
		"SlurmUser=slurm",
		"StateSaveLocation=/var/lib/slurm/slurmctld",
		"SlurmdSpoolDir=/var/lib/slurm/slurmd",
		"SlurmctldPidFile=/run/slurmctld.pid",
		"SlurmdPidFile=/run/slurmd.pid",
		"SlurmctldLogFile=/var/log/slurm/slurmctld.log",
		"SlurmdLogFile=/var/log/slurm/slurmd.log",
		"ProctrackType=proctrack/linuxproc",
		"TaskPlugin=task/none",
		"JobAcctGatherType=jobacct_gather/none",
		"AccountingStorageType=accounting_storage/slurmdbd",
		"AccountingStorageHost=" + m.head.addr,
		"AccountingStorageEnforce=associations,limits,qos",
		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_CPU",
		"SlurmdParameters=config_overrides",
		"ReturnToService=2",
		"Prolog=/etc/slurm/prolog",
		"Epilog=/etc/slurm/epilog.d/*",
		"NodeName=old2 NodeAddr=" + m.n1.addr + " CPUs=2 RealMemory=1000 State=UNKNOWN",
		"PartitionName=main Nodes=old2 Default=YES MaxTime=1:00:00 State=UP",
	}, "\n") + "\n"
	want := map[*host]string{m.head: "slurmctld slurmdbd mariadb-server slurm-client munge", m.n1: "slurmd slurm-client munge",
		m.login: "slurm-client munge"}
	// The packages lie in the root's apt cache.
	const line = `set -e
mkdir -p /etc/slurm && cat >/etc/slurm/slurm.conf
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf # which needs none: the machine's may be of any kind
printf '#!/bin/sh\ntouch /run/prolog.$SLURM_JOB_ID\n' >/etc/slurm/prolog && chmod 755 /etc/slurm/prolog
mkdir -p /etc/slurm/epilog.d /etc/slurm/shared/bin
printf '#!/bin/sh\n/etc/slurm/shared/bin/ended\n' >/etc/slurm/epilog.d/10-own
printf '#!/bin/sh\ntouch /run/epilog.$SLURM_JOB_ID\n' >/etc/slurm/shared/bin/ended
chmod 755 /etc/slurm/epilog.d/10-own /etc/slurm/shared/bin/ended
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq -y --no-download --no-install-recommends -o DPkg::Options::=--force-unsafe-io $0 >/dev/null
seq 1000 >/etc/munge/munge.key && chown munge: /etc/munge/munge.key && chmod 400 /etc/munge/munge.key
mkdir -p /var/lib/slurm/slurmctld && chown slurm: /var/lib/slurm/slurmctld
systemctl restart munge`
	var all sync.WaitGroup
	for h, packages := range want {
		all.Go(func() {
			cmd := m.inside(append(append([]string{"ssh"}, m.sshArgs()...), "root@"+h.addr, "bash -c '"+
				strings.ReplaceAll(line, "'", `'\''`)+"' '"+packages+"'")...)
			cmd.Stdin = strings.NewReader(m.conf)
			if out, err := cmd.CombinedOutput(); err != nil {
				m.t.Errorf("host %s: cannot install Slurm: %v\n%s", h.name, err, out)
			}
		})
	}
	all.Wait()
	if m.t.Failed() {
		return
	}
	m.head.do("root", `set -e
cat >/etc/slurm/slurmdbd.conf <<end
AuthType=auth/munge
DbdHost=old1
SlurmUser=slurm
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=secret
end
chown slurm: /etc/slurm/slurmdbd.conf && chmod 600 /etc/slurm/slurmdbd.conf
mariadb -e "CREATE DATABASE slurm_acct_db; GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED BY \"secret\""
systemctl restart slurmdbd`)
	m.head.until("slurmdbd answers", "root", "sacctmgr -nP show cluster && echo yes",
		func(out string) bool { return strings.HasSuffix(out, "yes") })
	m.head.do("root", `set -e
sacctmgr -i add cluster lab
sacctmgr -i add qos urgent priority=100 maxjobsperuser=2 maxwall=2:00:00
sacctmgr -i add account vision description=vision organization=lab fairshare=20 grptres=cpu=2
sacctmgr -i add user alice account=vision maxjobs=4 qos=normal,urgent`)
	m.accounts = m.head.do("root", accounts)
	m.head.do("root", "systemctl restart slurmctld")
	m.n1.do("root", "systemctl restart slurmd")
	m.runs("/usr/bin/sbatch")
}

// runs has a job of alice's run, and fails unless this is the program that it finds under the name sbatch.
func (m *slurm) runs(program string) {
	m.t.Helper()
	m.login.until("the node is idle", "alice", "sinfo -h -o %T", func(out string) bool { return out == "idle" })
	id := m.submit(where)
	out := m.login.until("the job's output", "alice", "cat "+id+".out", func(out string) bool { return strings.Contains(out, "prolog") })
	m.n1.until("the epilog has run", "root", "rm /run/epilog."+id+" && echo yes", func(out string) bool { return out == "yes" })
	m.login.do("alice", "rm "+id+".out") // the other of the two gives ids of its own, and may give this one again
	if want := program + "\nold2 main alice\nprolog"; out != want {
		m.t.Errorf("the job says %q, not %q", out, want)
	}
}

// busy has a job run while f is called.
func (m *slurm) busy(f func(id string)) {
	id := m.submit("--output=/dev/null --wrap 'sleep 1000'")
	m.login.until("it runs", "alice", "squeue -h -o %T -j "+id, func(out string) bool { return out == "RUNNING" })
	f(id)
	m.login.do("alice", "scancel "+id)
	m.login.until("it has ended", "alice", "squeue -h", func(out string) bool { return out == "" })
}

func (m *slurm) look(inv string) {
	r := m.play(inv, "migrate.yml")
	m.unchanged(r)
	for _, words := range []string{"slurm.conf", "Accounts: 3 accounts and users of slurmdbd are kept"} {
		if !r.says(words) {
			m.t.Errorf("nobody says %q:\n%s", words, r.out)
		}
	}
	m.busy(func(id string) {
		m.refused(m.play(inv, "migrate.yml", "-e", "sluice_migrate=yes"), "", "These jobs run under Slurm: "+id+" on old2 of alice")
	})
	m.runs("/usr/bin/sbatch")
}

func (m *slurm) there(inv string) {
	m.good(inv, "migrate.yml", "-e", "sluice_migrate=yes")
	for _, h := range []*host{m.head, m.n1} {
		if out, _ := h.run("root", "pgrep -lx 'slurm(ctl)?d'"); out != "" {
			m.t.Errorf("on %s Slurm runs still: %s", h.name, out)
		}
	}
	m.runs("/usr/bin/sluice")
	if out := m.login.do("alice", "srun sh -c 'echo $SLURMD_NODENAME'; salloc --quiet srun hostname"); out != "old2\nold2" {
		m.t.Errorf("srun and salloc say %q", out)
	}
	if got := m.head.do("root", accounts); got != m.accounts {
		m.t.Errorf("Slurm said of the accounts:\n%s\nSluice says:\n%s", m.accounts, got)
	}
	m.unchanged(m.play(inv, "site.yml"))
	m.unchanged(m.play(inv, "migrate.yml")) // which looks at what was moved away
}

func (m *slurm) back(inv string) {
	m.busy(func(id string) {
		m.refused(m.play(inv, "migrate.yml", "-e", "sluice_migrate=back"), "", "These jobs run: "+id+" on old2 of alice")
	})
	m.good(inv, "migrate.yml", "-e", "sluice_migrate=back")
	m.runs("/usr/bin/sbatch")
	for _, h := range []*host{m.head, m.login, m.n1} {
		now := h.do("root", "cat /etc/slurm/slurm.conf; ls -d /etc/slurm.before-sluice /var/lib/sluice-migration 2>/dev/null || true")
		if now+"\n" != m.conf {
			m.t.Errorf("on %s /etc/slurm/slurm.conf is not as it was, or something is left: %s", h.name, now)
		}
		if out, _ := h.run("root", "pgrep -l sluice"); out != "" {
			m.t.Errorf("on %s Sluice runs still: %s", h.name, out)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(inv), "group_vars", "sluice_hosts.yml")); err == nil {
		m.t.Error("the inventory still says that the cluster was taken over")
	}
	m.unchanged(m.play(inv, "migrate.yml", "-e", "sluice_migrate=back"))
}
