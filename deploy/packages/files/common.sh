# booted: whether systemd runs here; in a chroot it does not, and services start with the machine.
booted() { [ -d /run/systemd/system ]; }
# say what the administrator has to know, on the terminal of the package manager.
say() { echo "sluice: $*" >&2; }
# stale UNIT: whether it runs a program that has been replaced.
stale() {
	pid=$(systemctl show -p MainPID --value "$1" 2>/dev/null) || return 1
	[ "${pid:-0}" -gt 0 ] 2>/dev/null && case $(readlink "/proc/$pid/exe") in *' (deleted)') return 0 ;; esac
	return 1
}
# restart UNIT: a daemon that does not start again is no reason to leave the package half installed.
restart() {
	systemctl restart "$1" || say "$1 does not start; see: journalctl -u $1"
}
# wanted UNIT: whether it runs, is to run, or has failed to.
wanted() { systemctl --quiet is-enabled "$1" || systemctl --quiet is-active "$1" || systemctl --quiet is-failed "$1"; } 2>/dev/null
users() { systemd-sysusers sluice.conf 2>/dev/null || systemd-sysusers /usr/lib/sysusers.d/sluice.conf; }
# logs OWNER: the folder that slurm.conf names for logs on hosts that had Slurm's packages. An empty one of root's, that the package of
# nodes has made, becomes OWNER's.
logs() {
	[ -e /var/log/slurm ] || install -d -m 755 /var/log/slurm
	find /var/log/slurm -maxdepth 0 -type d -empty -user root -exec chown "$1" {} +
}
# configured: the first slurm.conf of a controller's host. One that is there, or that was removed since, stays so.
configured() {
	mkdir -p /etc/slurm
	[ -e /etc/slurm/slurm.conf ] || [ -L /etc/slurm/slurm.conf ] || {
		cp /usr/share/sluice/slurm.conf /etc/slurm/slurm.conf
		chmod 644 /etc/slurm/slurm.conf
		say "/etc/slurm/slurm.conf is made: a cluster of this machine"
	}
}
# unconfigured: removes slurm.conf if it is still as the package has made it.
unconfigured() {
	if echo "@SUM@  /etc/slurm/slurm.conf" | sha256sum --check --status 2>/dev/null; then
		rm -f /etc/slurm/slurm.conf
	elif [ -e /etc/slurm/slurm.conf ]; then
		say "/etc/slurm/slurm.conf has been changed, and stays"
	fi
	rmdir /etc/slurm 2>/dev/null || true
}
