package packages_test

// notTyped are the commands of the pages that no test runs on its hosts, and why.
var notTyped = map[string]string{
	"sluice adopt":                         "sshd has it run; internal/test/hosttest has a real one",
	"sluice-noded --sessions":              "internal/test/hosttest runs it so",
	"srun --jobid=ID --overlap --pty bash": "there is no terminal; cmd/e2e runs it in one",
	"srun --mpi=pmix":                      "the hosts have no MPI program; cmd/e2e runs some",
	"make packages":                        "the packages of these tests are made so",
	"make install PREFIX=/usr":             "without packages; make install is tested by cmd/e2e",
	"apt-get install chrony":               "the hosts reach no mirror",
	"apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross": "the hosts reach no mirror",
	"systemd-sysusers deploy/systemd/sysusers.conf":               "without packages, whose scripts do the same",
	"man sluice-sbatch":     "the hosts have no man; deploy/man asks it about all pages",
	"man sbatch":            "the hosts have no man; deploy/man asks it about all pages",
	"pkill -x sluice-noded": "the hosts have no pkill",
	"scontrol reboot":       "the hosts are not to reboot",
	"sluice up":             "for a cluster of one's own; cmd/e2e runs it",
	"ansible-playbook -i inventory deploy/ansible/site.yml": "over a fleet: make test-cluster",
}

// administration are the commands of the pages, in an order in which each finds what it needs.
var administration = []typed{
	// Logs, services and packages.
	{of: "scontrol show config", host: "head", do: "scontrol show config", says: "SlurmctldHost"},
	{of: "systemctl show -P MainPID sluice-ctld", host: "head", do: "kill -0 $(systemctl show -P MainPID sluice-ctld)"},
	{of: "journalctl -p warning", host: "head", do: "journalctl -p warning"},
	{of: "journalctl -t sluice-noded", host: "n1", do: "journalctl -t sluice-noded", says: "linked to the controller"},
	{of: "journalctl -u sluice-noded", host: "n1", do: "journalctl -u sluice-noded", says: "linked to the controller"},
	{of: "systemctl enable --now sluice-ctld", host: "head", do: "systemctl enable --now sluice-ctld"},
	{of: "systemctl status sluice-noded", host: "n1", do: "systemctl status sluice-noded", says: "active (running)"},
	{of: "sluice-noded --version", host: "n1", do: "sluice-noded --version", says: "sluice "},
	{of: "systemd-analyze security", host: "head", do: "systemd-analyze security sluice-ctld", says: "1.4 OK"},
	{of: "systemctl start", host: "head", do: "systemctl start sluice-ctld"},
	{of: "systemctl status", host: "head", do: "systemctl status sluice-ctld", says: "cluster lab"},
	{of: "systemctl reload sluice-ctld", host: "head", do: "systemctl reload sluice-ctld"},
	{of: "systemctl reload sluice-ctld", host: "head",
		do: "echo NoSuchKey=1 >>/etc/slurm/slurm.conf; systemctl reload sluice-ctld", status: 1},
	{of: "journalctl -p warning", host: "head",
		do: "sed -i /NoSuchKey/d /etc/slurm/slurm.conf; journalctl -p warning", says: "Reload failed"},
	{of: "slurmctld -Dvvv -f FILE", host: "head",
		do: "echo Nonsense >/root/conf; slurmctld -Dvvv -f /root/conf", says: "/root/conf:1", status: 1},
	{of: "slurmd -C", host: "n1", do: "slurmd -C", says: "NodeName=n1 CPUs="},
	{of: "systemctl edit sluice-ctld", host: "head", do: `printf '[Service]\nPrivateTmp=no\n' >/root/edit
		printf 'for f; do case $f in */.#*) cp /root/edit $f ;; esac; done\n' >/root/editor
		EDITOR='sh /root/editor' script -qec 'systemctl edit sluice-ctld' /dev/null
		systemctl restart sluice-ctld
		systemctl show -P PrivateTmp sluice-ctld`,
		says: "no\n"},
	{of: "slurmctld -c", host: "head", do: "systemctl stop sluice-ctld; slurmctld -c", says: "would delete", status: 1},
	{of: "slurmctld -d", host: "head", do: "slurmctld -d -f /root/conf", says: "-d", status: 1},
	{of: "systemctl start", host: "head", do: "systemctl start sluice-ctld", until: idle("n1")},
	{of: "slurmd -M", host: "n1", do: byHand + "slurmd -M -Z\ngrep VmLck /proc/$(systemctl show -P MainPID by-hand)/status", says: " kB"},
	{of: "slurmd -b", host: "n1", do: byHand + "slurmd -b -Z\njournalctl -u by-hand", says: "option without effect"},
	{of: "sluice-noded --conf-server head:6817 --tls /etc/sluice/tls", host: "n1",
		do: byHand + "sluice-noded --conf-server head:6817 --tls /etc/sluice/tls -Z", until: idle("n1")},
	{of: "sluice-noded -Z", host: "n1", do: `systemctl stop by-hand; systemctl start sluice-noded
		tr '\0' ' ' </proc/$(systemctl show -P MainPID sluice-noded)/cmdline | grep '^/usr/sbin/sluice-noded -Z'`, until: idle("n1")},

	// Hosts.
	{host: "head", do: "sed -i '/^PartitionName/i NodeName=n7 CPUs=1' /etc/slurm/slurm.conf; scontrol reconfigure"},
	{of: "sluice token create --node n7", host: "head", do: "sluice token create --node n7 >/root/token"},
	{of: "sluice-noded --join -", host: "n7", do: byHand + "sluice-noded --join -", until: idle("n7")},
	{of: "sluice token create --node w5 --any-node", host: "head", do: "sluice token create --node w5 --any-node >/root/token"},
	{of: `sluice-noded -Z --join - --conf "Feature=fast"`, host: "w5", do: byHand + `sluice-noded -Z --join - --conf "Feature=fast"`,
		until: idle("w5") + " && sinfo -h -n w5 -o %f | grep -qx fast"},
	{of: "sluice token list", host: "head", do: "sluice token list", says: "w5"},
	{of: "sluice token revoke ID", host: "head", do: `sluice token create --node n9 --any-node >/dev/null
		sluice token revoke $(sluice token list | awk '/ n9 /{print $1}')
		sluice token list | grep n9`, says: "revoked"},
	{of: "sluice certs", host: "head", do: "sluice certs", says: "w5"},
	{of: "sluice node list", host: "head", do: "sluice node list", says: "login1"},
	{of: "sluice node revoke NAME", host: "head", do: "sluice node revoke n7", until: "sinfo -h -n n7 -o %T | grep -q down"},
	{of: "sluice token create --node NAME", host: "head", do: "sluice token create --node n7 >/root/token"},
	{of: "sluice-noded --join -", host: "n7", do: byHand + "sluice-noded --join -", until: idle("n7")},
	{of: "scontrol update NodeName=n7 State=DOWN Reason=lost", host: "head", do: "scontrol update NodeName=n7 State=DOWN Reason=lost",
		until: "sinfo -h -n n7 -o %T | grep -q down"},
	{of: `scontrol update NodeName=n7 State=RESUME Reason="looked at"`, host: "head",
		do: `scontrol update NodeName=n7 State=RESUME Reason="looked at"`, until: idle("n7")},
	{of: "sluice-ctld issue --node NAME --out DIR", host: "head",
		do: "sluice-ctld issue --node n7 --out /root/n7; ls /root/n7", says: "node.key"},
	{of: "sluice-ctld issue", host: "head", do: "sluice-ctld issue --node n7 --out /root/n7b"},
	{of: "sluice-ctld --conf /etc/slurm/slurm.conf issue --node login1 --role login --out DIR", host: "head",
		do: `sluice-ctld --conf /etc/slurm/slurm.conf issue --node login1 --role login --out /root/login1
			tar -cz -C /root/login1 . | base64 -w0 >/root/token`},
	{of: "sluice-noded --login --conf /etc/slurm/slurm.conf --tls /etc/sluice/tls", host: "login1",
		do: `mkdir -p /etc/slurm; cp /run/sluice/conf/slurm.conf /etc/slurm; systemctl stop sluice-login; rm /etc/sluice/tls/*
			echo @TOKEN@ | base64 -d | tar -xz -C /etc/sluice/tls
			systemd-run --unit=by-hand -p Type=notify sluice-noded --login --conf /etc/slurm/slurm.conf --tls /etc/sluice/tls
			` + ada + "sinfo -h -o %P", says: "batch"},
	{of: "scontrol create NodeName=cloud[1-8] State=CLOUD CPUs=16 RealMemory=64000 Feature=burst", host: "head",
		do: "scontrol create NodeName=cloud[1-8] State=CLOUD CPUs=16 RealMemory=64000 Feature=burst; scontrol show node cloud8", says: "burst"},
	{of: "scontrol create", host: "head", do: "scontrol create NodeName=g1 State=CLOUD CPUs=2 RealMemory=1000 Gres=gpu:2"},
	{of: "scontrol delete NodeName=cloud[5-8]", host: "head",
		do: "scontrol delete NodeName=cloud[5-8]; scontrol show node cloud8", status: 1},
	{of: "scontrol delete", host: "head", do: "scontrol delete NodeName=cloud4"},
	{of: "scontrol show node", host: "head", do: "scontrol show node w5", says: "DYNAMIC_NORM"},
	{of: "scontrol show nodes", host: "head", do: "scontrol show nodes", says: "NodeName=n7"},

	// Nodes that fail, and jobs.
	{of: "scontrol update", host: "head", do: "scontrol update nodename=n1 state=drain reason='a fan'"},
	{of: "sinfo -R", host: "head", do: "sinfo -R", says: "a fan"},
	{of: "scontrol update nodename=… state=resume", host: "head", do: "scontrol update nodename=n1 state=resume", until: idle("n1")},
	{of: "scontrol update nodename=… state=drain reason=…", host: "n1", do: "scontrol update nodename=n1 state=drain reason=heat",
		until: "sinfo -R | grep -q heat"},
	{of: "scontrol update nodename=… state=resume", host: "head", do: "scontrol update nodename=n1 state=resume", until: idle("n1")},
	{host: "head", do: ada + "sbatch --wait -o /dev/null --wrap true", says: "Submitted batch job"},
	{of: "scontrol release", host: "head",
		do: "id=$(" + ada + "sbatch --parsable -H -w n1 -o /dev/null --wrap 'sleep 9999'); scontrol release $id"},
	{of: "scontrol show job", host: "head", do: "scontrol show job $(squeue -h -o %A)", says: "JobState=RUNNING"},
	{of: "sluice explain", host: "head", do: "sluice explain $(squeue -h -o %A)"},
	{of: "sluice explain JOB", host: "head", do: "sluice explain $(squeue -h -o %A)"},
	{of: "scontrol reconfigure --dry-run", host: "head", do: `sed -i 's/^MaxNodeCount=.*/MaxNodeCount=1000/' /etc/slurm/slurm.conf
		scontrol reconfigure --dry-run`, says: "MaxNodeCount"},
	{of: "scontrol reconfigure --force", host: "head", do: "scontrol reconfigure --force"},
	{of: "scontrol reconfigure", host: "head",
		do: "scancel $(squeue -h -o %A); scontrol reconfigure; scontrol show config", says: "= 1000"},
	{of: "scontrol update nodename=$SLURMD_NODENAME state=drain reason=…", host: "head",
		do: `printf '#!/bin/sh\n[ ! -e /root/bad ] || scontrol update nodename=$SLURMD_NODENAME state=drain reason="bad file"\n' \
			>/etc/slurm/health; chmod 755 /etc/slurm/health
			printf 'HealthCheckProgram=/etc/slurm/health\nHealthCheckInterval=1\n' >>/etc/slurm/slurm.conf; scontrol reconfigure`},
	{host: "n1", do: "touch /root/bad", until: "sinfo -h -R | grep -q 'bad file'"},
	{host: "n1", do: "rm /root/bad"},

	// Power saving.
	{host: "head", do: `printf 'SuspendProgram=/usr/bin/true\nResumeProgram=/usr/bin/true\nSuspendTimeout=1\n' >>/etc/slurm/slurm.conf
		scontrol reconfigure`},
	{of: "sbatch --gres=gpu:2", host: "head",
		do: ada + "sbatch --gres=gpu:2 -o /dev/null --wrap true", until: "sinfo -h -n g1 -o %t | grep -q '#'"},
	{of: "scontrol update nodename=NODES state=…", host: "head", do: "scontrol update nodename=w5 state=POWER_DOWN",
		until: "sinfo -h -n w5 -o %t | grep -q '[~%]'"},
	{of: "scontrol update state=RESUME", host: "head", do: "scontrol update state=RESUME nodename=w5"},

	// Users and the state.
	{of: "useradd --system --home-dir / --shell /usr/sbin/nologin slurm", host: "head",
		do: "useradd --system --home-dir / --shell /usr/sbin/nologin slurm"},
	{of: "chown slurm FILE", host: "head", do: "touch /var/log/slurmctld.log; chown slurm /var/log/slurmctld.log"},
	{of: "cat /etc/subuid", host: "head", do: "cat /etc/subuid", says: "ada:"},
	{of: "getent passwd", host: "head", do: "getent passwd"},
	{of: "getent passwd UID", host: "head", do: "getent passwd 1234", says: "ada"},
	{of: "scontrol shutdown", host: "head", do: "scontrol shutdown", until: "! systemctl --quiet is-active sluice-ctld"},
	{of: "sluice-ctld restore … --from FILE", host: "head", do: `cp -p /var/lib/sluice/ctld/sluice.db /var/lib/sluice/backup.db
		rm /var/lib/sluice/ctld/sluice.db
		sluice-ctld restore --from /var/lib/sluice/backup.db`, says: "restored from"},
	{of: "sluice-ctld --conf /etc/slurm/slurm.conf restore --from STATE/sluice.db", host: "head",
		do: "sluice-ctld --conf /etc/slurm/slurm.conf restore --from /var/lib/sluice/ctld/sluice.db", says: "restored from"},
	{host: "n1", do: "systemctl start sluice-noded"}, // scontrol shutdown ended it
	{of: "systemctl start", host: "head", do: "systemctl start sluice-ctld; sacct -nXP -j 1 -o user,state", says: "ada|COMPLETED",
		until: "sinfo -h -n n1 -o %T | grep -q drained"},
	{of: "journalctl -u sluice-ctld -g 'does not know'", host: "head", // nothing ran
		do: "journalctl -u sluice-ctld -g 'does not know'", says: "No entries", status: 1},
	{of: "sluice node revoke", host: "head", do: "sluice node revoke login1; sluice certs | grep login1", says: "revoked"},
}

// idle is a command that succeeds when a node is.
func idle(node string) string { return "sinfo -h -n " + node + " -o %T | grep -qx idle" }

// ada runs the command that follows as an ordinary user.
const ada = "setpriv --reuid=ada --regid=ada --init-groups "

// byHand runs the daemon that follows without its unit, and waits until it works; on its standard input is a token.
const byHand = `systemctl stop sluice-noded by-hand 2>/dev/null || true
	systemctl reset-failed by-hand 2>/dev/null || true
	echo '@TOKEN@' >/root/token
	systemd-run --quiet --unit=by-hand -p Type=notify -p KillMode=process -p Delegate=yes -p StandardInput=file:/root/token `

// prepared is typed before the packages are installed.
var prepared = []typed{
	{of: "useradd --system --home-dir / --shell /usr/sbin/nologin sluice-noded", host: "login1",
		do: "useradd --system --home-dir / --shell /usr/sbin/nologin sluice-noded"}, // the packages would make the user otherwise
	{host: "head", do: "echo none >/root/token"},
}
