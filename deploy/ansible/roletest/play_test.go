package roletest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// play is tasks of the roles on hosts that are all this machine.
type play struct {
	inventory string         // INI; its hosts get ansible_connection=local
	vars      map[string]any // of all hosts
	prepare   string         // YAML of tasks that all hosts have before
	hosts     string         // whose tasks follow; all for ""
	tasks     string         // YAML; each "- file: ROLE/NAME" is tasks/NAME.yml of a role
	before    string         // what the shell does first
	programs  map[string]string
	args      []string
}

// result is what has become of it.
type result struct {
	out string
	err error
	dir string // what was written, below etc, usr/local and var
}

// setUp makes /etc, /usr/local and /var copies on write and /run empty, and keeps what is written there in $1/out. $2 is the checkout,
// which may be a mount below /var that the copy does not show.
const setUp = `set -eu
dir=$1
mount --bind "$2" "$dir/checkout"
mount -t tmpfs tmpfs "$dir/layers"
mount -t tmpfs tmpfs /run
for at in etc usr/local var; do
	mkdir -p "$dir/layers/up/$at" "$dir/layers/work/$at"
	mount -t overlay overlay -o "lowerdir=/$at,upperdir=$dir/layers/up/$at,workdir=$dir/layers/work/$at" "/$at"
done
mkdir -p "$2"
mount --bind "$dir/checkout" "$2"
rm -rf /etc/slurm /etc/sluice /etc/prometheus /var/log/slurm
. "$dir/before"
shift 2
status=0
"$@" || status=$?
mkdir "$dir/out"
for at in etc/slurm etc/sluice etc/prometheus etc/grafana var/lib/grafana var/log etc/systemd/system usr/local/bin; do
	[ ! -e "/$at" ] || { mkdir -p "$dir/out/${at%/*}" && cp -a "/$at" "$dir/out/$at"; }
done
exit $status`

var taskFile = regexp.MustCompile(`(?m)^- file: (\w+)/(\w+)$`)

// run runs the play.
func (p play) run(t *testing.T) result {
	t.Helper()
	needsAnsible(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	vars, err := json.Marshal(p.vars)
	if err != nil {
		t.Fatal(err)
	}
	hosts := p.hosts
	if hosts == "" {
		hosts = "all"
	}
	write("inventory/hosts", p.inventory+"\n[all:vars]\nansible_connection=local\n", 0o644)
	write("inventory/group_vars/all.yml", string(vars), 0o644) // JSON is YAML
	tasks := taskFile.ReplaceAllString(p.tasks, "- ansible.builtin.include_role: {name: $1, tasks_from: $2}")
	const groups = "- ansible.builtin.include_role: {name: common, tasks_from: groups}\n"
	write("play.yml", fmt.Sprintf("- hosts: all\n  gather_facts: false\n  any_errors_fatal: true\n  tasks:\n%s"+
		"- hosts: %s\n  gather_facts: false\n  roles: [common]\n  tasks:\n%s", indent(groups+p.prepare), hosts, indent(tasks)), 0o644)
	write("before", p.before, 0o644)
	write("layers/.keep", "", 0o644)
	write("ansible.cfg", "", 0o644)
	write("bin/.keep", "", 0o644)
	write("checkout/.keep", "", 0o644)
	for name, text := range p.programs {
		write("bin/"+name, text, 0o755)
	}
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--mount", "--propagation", "private", "sh", "-c", setUp, "sh", dir, filepath.Join(top, "../.."),
		"ansible-playbook", "-i", filepath.Join(dir, "inventory", "hosts"), filepath.Join(dir, "play.yml")}, p.args...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_HOME="+filepath.Join(dir, "ansible"), "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8",
		"ANSIBLE_LOCAL_TEMP="+filepath.Join(dir, "tmp"), "ANSIBLE_REMOTE_TEMP="+filepath.Join(dir, "tmp"),
		"ANSIBLE_CONFIG="+filepath.Join(dir, "ansible.cfg"),
		"ANSIBLE_ROLES_PATH="+filepath.Join(top, "roles"), "ANSIBLE_FILTER_PLUGINS="+filepath.Join(top, "plugins", "filter"),
		"ANSIBLE_PIPELINING=1", "PYTHONDONTWRITEBYTECODE=1", "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return result{out: string(out), err: err, dir: filepath.Join(dir, "out")}
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}

// needsAnsible skips where plays cannot be run, and says what helps.
func needsAnsible(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("ansible-playbook is missing: apt-get install ansible-core")
	}
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
}

// good runs a play that has to succeed.
func (p play) good(t *testing.T) result {
	t.Helper()
	r := p.run(t)
	if r.err != nil {
		t.Fatalf("ansible-playbook: %v\n%s", r.err, r.out)
	}
	return r
}

// file is what the play has written there.
func (r result) file(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	return string(text)
}

// says tells whether a text is in what was said, however it was broken into lines.
func (r result) says(text string) bool {
	return strings.Contains(strings.Join(strings.Fields(r.out), " "), text)
}
