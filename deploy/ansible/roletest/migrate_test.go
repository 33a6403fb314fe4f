package roletest

import (
	"strings"
	"testing"
)

// systemctl knows which units are stopped, at first none.
const systemctl = `#!/bin/sh
for unit; do :; done
case $1 in
is-enabled) [ -e $HOME/off.$unit ] || echo enabled; [ ! -e $HOME/off.$unit ] ;;
is-active) [ -e $HOME/off.$unit ] || echo active; [ ! -e $HOME/off.$unit ] ;;
disable) touch $HOME/off.$unit ;;
start) rm -f $HOME/off.$unit ;;
esac
`

// TestMigrationKeepsPrograms: what slurm.conf names below /etc/slurm, and what that calls, is where it was after Slurm has gone, commands
// are ours, and on the way back all is as it was.
func TestMigrationKeepsPrograms(t *testing.T) {
	const before = `mkdir -p /etc/slurm/epilog.d /etc/slurm/shared/bin; cd /etc/slurm
touch slurm.conf slurmdbd.conf prolog.sh epilog.d/10-own shared/bin/run-parts.sh job_submit.lua; ln -s prolog.sh prolog
chmod 755 prolog.sh shared/bin/run-parts.sh; mkdir -p /usr/local/bin; echo own >/usr/local/bin/srun
`
	const list = "- shell: cd /etc/slurm && find . -mindepth 1 -printf '%p %m,' | tr , '\\n' | sort | tr '\\n' ,\n  register: list\n" +
		"- debug: {msg: 'now={{ list.stdout }}='}\n"
	const look = list + "- shell: cd /usr/local/bin && readlink srun salloc sinfo | sort | uniq -c; cat srun || true\n  register: look\n" +
		"- debug: {msg: 'links={{ look.stdout | regex_replace(\"\\\\s+\", \" \") }}='}\n"
	r := play{inventory: "[controller]\nhead\n", before: before, vars: map[string]any{"sluice_ignore_jobs": true},
		programs: map[string]string{"systemctl": systemctl, "sluice": sluice(t)},
		tasks: "- file: common/migrate_stop\n- file: common/migrate_links\n" + look +
			"- file: common/migrate_stop\n- file: common/migrate_links\n" +
			"- debug: {msg: 'again={{ sluice_stopped is changed or sluice_links is changed }}='}\n" +
			"- file: common/migrate_back\n" + look}.good(t)
	const kept = "./epilog.d 755,./epilog.d/10-own 644,./job_submit.lua 644,./prolog 777,./prolog.sh 755,./shared 755,./shared/bin 755," +
		"./shared/bin/run-parts.sh 755,"
	for _, says := range []string{"now=" + kept + "=", "links= 3 /usr/bin/sluice", "again=False=",
		"now=" + kept + "./slurm.conf 644,./slurmdbd.conf 644,=", "links=own="} {
		if !r.says(says) {
			t.Errorf("nobody says %q", says)
		}
	}
	if t.Failed() {
		t.Log(r.out)
	}
	if got := strings.TrimSpace(r.file(t, "usr/local/bin/srun")); got != "own" {
		t.Errorf("srun of the site is %q", got)
	}
}
