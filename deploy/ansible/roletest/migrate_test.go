package roletest

import (
	"os"
	"path/filepath"
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

// TestMigrationLoadsAccounts: QOS first, which accounts name; then the accounts; what sacctmgr says of settings without effect is shown.
// A Sluice that has accounts keeps them.
func TestMigrationLoadsAccounts(t *testing.T) {
	const qos = "Name|Descr|Priority|MaxWall\nnormal|Normal QOS default|0|\nhigh|very high|100|1-00:00:00\n"
	const dump = "Cluster - 'lab':Fairshare=1:QOS='normal'\nParent - 'root'\nAccount - 'vision':Fairshare=3:QOS='high'\n"
	// sacctmgr, which knows accounts once they are loaded, and keeps what it was told.
	const sacctmgr = `#!/bin/sh
[ "$1" = sacctmgr ] || exit 1
case $* in
*show\ account*) echo root; [ ! -e $HOME/loaded ] || echo vision ;;
*show\ qos*) echo normal ;;
*load*) cat >$HOME/loaded; echo "$*" >>/var/log/said; cat $HOME/loaded >>/var/log/said ;;
*) echo "$*" >>/var/log/said; echo "sacctmgr: stored, but not enforced yet: MaxWall" >&2 ;;
esac
`
	dir := t.TempDir()
	for name, text := range map[string]string{"accounts.dump": dump, "qos.table": qos} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := play{inventory: "[controller]\nhead\n", vars: map[string]any{"sluice_migration_dir": dir},
		programs: map[string]string{"sluice": sacctmgr}, tasks: "- file: common/migrate_accounts\n- file: common/migrate_accounts\n"}
	r := p.good(t)
	want := "sacctmgr --immediate add qos high\n" +
		"sacctmgr --immediate modify qos normal set Descr=Normal QOS default\n" +
		"sacctmgr --immediate modify qos high set Descr=very high Priority=100 MaxWall=1-00:00:00\n" +
		"sacctmgr --immediate load /dev/stdin\n" + dump
	if got := r.file(t, "var/log/said"); got != want {
		t.Errorf("sacctmgr was told\n%s\nnot\n%s", got, want)
	}
	for _, says := range []string{"stored, but not enforced yet: MaxWall", "Sluice has accounts already"} {
		if !r.says(says) {
			t.Errorf("nobody says %q:\n%s", says, r.out)
		}
	}
	// A Slurm without slurmdbd has nothing to load.
	p.vars = map[string]any{"sluice_migration_dir": t.TempDir()}
	if r := p.good(t); r.says("Sluice has accounts already") {
		t.Errorf("%s", r.out)
	}
}
