package roletest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

const configure = "- set_fact: {sluice_missing: [], sluice_found_controller: {hostname: head}}\n- file: controller/configure\n"

// checks stands in for the program, for which package conf speaks here.
var checks = map[string]string{"sluice": "#!/bin/sh\nexit 0\n"}

// sluice builds the program, and gives a script that runs it.
func sluice(t *testing.T) string {
	t.Helper()
	needsAnsible(t)
	program := filepath.Join(t.TempDir(), "sluice")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return "#!/bin/sh\nexec " + program + " \"$@\"\n"
}

// load reads the slurm.conf that a play has written.
func load(t *testing.T, r result) *conf.Config {
	t.Helper()
	c, err := conf.Load(filepath.Join(r.dir, "etc/slurm/slurm.conf"), conf.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.file(t, "etc/slurm/slurm.conf"))
	}
	return c
}

// TestDefaultsOfJobs: a job that says nothing gets the share of the smallest node in the first run, and an hour; later runs, which may
// see other nodes or none, leave it so.
func TestDefaultsOfJobs(t *testing.T) {
	const nodes = "[controller]\nhead\n[nodes]\nn1\nn2\nn3\n"
	seen := `- set_fact: {sluice_found: {node: {RealMemory: "{{ {'n1': 256000, 'n2': 8010, 'n3': 1}[inventory_hostname] }}", CPUs: 4}}}
  when: inventory_hostname in look
`
	for _, c := range []struct {
		name, before string
		look         []string
		vars         map[string]any
		want         uint64
	}{
		{name: "first run", look: []string{"n1", "n2"}, want: 2002,
			before: "mkdir /etc/slurm; echo DefMemPerCPU=1000 >/etc/slurm/slurm.conf"}, // the package's
		{name: "a later run", look: []string{"n3"}, before: "mkdir /etc/slurm; printf '# Hosts get this file from the controller\\n" +
			"DefMemPerCPU=4000\\n' >/etc/slurm/slurm.conf", want: 4000},
		{name: "the site has another", vars: map[string]any{"slurm_config": map[string]any{"DefMemPerNode": 77}}, want: 0},
		{name: "nodes in variables", look: []string{"n1"}, vars: map[string]any{"slurm_nodes": []any{map[string]any{"name": "n[1-3]",
			"CPUs": 2, "RealMemory": 9000}}}, want: 4500},
	} {
		t.Run(c.name, func(t *testing.T) {
			vars := map[string]any{"look": append([]string{}, c.look...)}
			for k, v := range c.vars {
				vars[k] = v
			}
			r := play{inventory: nodes, vars: vars, before: c.before, programs: checks, prepare: seen, hosts: "head",
				tasks: configure}.good(t)
			got := load(t, r)
			if p := got.Partitions[0]; got.DefMemPerCPUMiB != c.want || p.DefaultTimeMin != 60 {
				t.Errorf("DefMemPerCPU=%d DefaultTime=%d, want %d and 60\n%s", got.DefMemPerCPUMiB, p.DefaultTimeMin, c.want,
					r.file(t, "etc/slurm/slurm.conf"))
			}
		})
	}
}

// TestVariablesOfDeepOps: those with a counterpart have an effect, and the others are named once.
func TestVariablesOfDeepOps(t *testing.T) {
	r := play{inventory: "[slurm-master]\nhead\n[slurm-node]\ng1\ng2\n", programs: checks,
		vars: map[string]any{"slurm_cluster_name": "ops", "slurm_username": "slurm", "slurm_return_to_service": 2,
			"slurm_resume_timeout": 900, "slurm_max_job_timelimit": "8:00:00", "slurm_oversubscribe": "EXCLUSIVE",
			"slurm_restrict_node_access": true,
			"slurm_allow_ssh_user":       []string{"ops"}, "slurm_health_check_program": "/usr/sbin/nhc", "slurm_enable_ha": false,
			"slurm_install_nhc": true, "sluice_preflight": false},
		tasks: "- file: common/preflight\n- file: controller/configure\n" +
			"- ansible.builtin.include_role: {name: node, tasks_from: programs, public: true}\n" +
			"- debug: {msg: 'pam={{ sluice_pam }} {{ sluice_pam_always | join(\",\") }}='}\n"}.good(t)
	c := load(t, r)
	if p := c.Partitions[0]; c.ClusterName != "ops" || c.SlurmUser != "slurm" || c.ReturnToService != 2 || c.ResumeTimeoutSec != 900 ||
		p.MaxTimeMin != 480 || p.DefaultTimeMin != conf.NotSet || p.OverSubscribe.Mode != "EXCLUSIVE" {
		t.Errorf("%s", r.file(t, "etc/slurm/slurm.conf"))
	}
	if to, err := os.Readlink(filepath.Join(r.dir, "etc/sluice/programs/health.d/50-site")); err != nil || to != "/usr/sbin/nhc" {
		t.Errorf("the health check is %q: %v", to, err)
	}
	for says, want := range map[string]int{"have no effect: slurm_enable_ha, slurm_install_nhc. README.md": 1, "pam=True root,ops=": 3} {
		if got := strings.Count(strings.Join(strings.Fields(r.out), " "), says); got != want {
			t.Errorf("%q is said %d times, want %d\n%s", says, got, want, r.out)
		}
	}
}

// TestFaultsAreNamed: a refusal has the faults of all files, and nothing that is none.
func TestFaultsAreNamed(t *testing.T) {
	r := play{inventory: "[controller]\nhead\n", tasks: configure,
		vars: map[string]any{"slurm_gres_config": []any{map[string]any{"Nome": "gpu"}}},
		programs: map[string]string{"sluice": `#!/bin/sh
echo "$3:2: ignored: AuthType — munge is not needed"
echo "warning: $3:4: Prolog=/x: no such file"
echo "advice: $3: a job without --time has no time limit"
echo "${3%/*}/gres.conf:1: unknown key Nome (did you mean Name?)"
echo "${3%/*}/cgroup.conf:3: ConstrainCores=maybe: neither yes nor no"
echo "sluice: error: $3: 2 faults" >&2
exit 1
`}}.run(t)
	const want = "nothing was changed: gres.conf:1: unknown key Nome (did you mean Name?) | cgroup.conf:3: ConstrainCores=maybe: " +
		"neither yes nor no | sluice: error: slurm.conf: 2 faults\""
	if r.err == nil || !r.says(want) {
		t.Errorf("%v: nobody says %q\n%s", r.err, want, r.out)
	}
}

// TestNoWarnings: the slurm.conf of the role has nothing that the controller warns of at its start.
func TestNoWarnings(t *testing.T) {
	r := play{inventory: "[controller]\nhead\n", before: "echo sluice:x:990:990::/:/usr/sbin/nologin >>/etc/passwd\n",
		programs: map[string]string{"sluice": sluice(t)},
		vars:     map[string]any{"sluice_programs": []string{"health", "gpus", "leftovers"}, "slurm_gres_config": []any{}},
		tasks:    configure + "- debug: {msg: '{{ sluice_checked.stdout }}'}\n"}.good(t)
	if r.says("ignored: ") || r.says("warning: ") || !r.says("no faults; cluster cluster") {
		t.Errorf("%s", r.out)
	}
}
