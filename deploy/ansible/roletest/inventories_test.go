package roletest

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// checked prints what the program says of a good slurm.conf.
const checked = "- debug: {msg: '{{ sluice_checked.stdout }}'}\n"

// TestGalaxyExample: the longer example of galaxyproject.slurm's README, with a host for its controller, makes a configuration that the
// controller takes, as it says, with its user.
func TestGalaxyExample(t *testing.T) {
	vars := map[string]any{
		"sluice_preflight": false,
		"slurm_cgroup_config": map[string]any{"CgroupMountpoint": "/sys/fs/cgroup", "CgroupAutomount": true, "ConstrainCores": true,
			"TaskAffinity": false, "ConstrainRAMSpace": true, "ConstrainSwapSpace": false, "ConstrainDevices": false,
			"AllowedRamSpace": 100, "AllowedSwapSpace": 0, "MaxRAMPercent": 100, "MaxSwapPercent": 100, "MinRAMSpace": 30},
		"slurm_config": map[string]any{"AccountingStorageType": "accounting_storage/none", "ClusterName": "lab", "GresTypes": "gpu",
			"JobAcctGatherType": "jobacct_gather/none", "MpiDefault": "none", "ProctrackType": "proctrack/cgroup", "ReturnToService": 1,
			"SchedulerType": "sched/backfill", "SelectType": "select/cons_res", "SelectTypeParameters": "CR_Core", "SlurmctldHost": "head",
			"SlurmctldLogFile": "/var/log/slurm/slurmctld.log", "SlurmctldPidFile": "/var/run/slurmctld.pid",
			"SlurmdLogFile": "/var/log/slurm/slurmd.log", "SlurmdPidFile": "/var/run/slurmd.pid", "SlurmdSpoolDir": "/var/spool/slurmd",
			"StateSaveLocation": "/var/spool/slurmctld", "SwitchType": "switch/none", "TaskPlugin": "task/affinity,task/cgroup",
			"TaskPluginParam": "Sched"},
		"slurm_create_user": true,
		"slurm_gres_config": []any{map[string]any{"File": "/dev/nvidia[0-3]", "Name": "gpu", "NodeName": "g[01-10]", "Type": "a100"}},
		"slurm_munge_key":   "../munge.key",
		"slurm_nodes": []any{map[string]any{"name": "g[01-10]", "CoresPerSocket": 18, "Gres": "gpu:a100:4", "Sockets": 2,
			"ThreadsPerCore": 2}},
		"slurm_partitions": []any{map[string]any{"name": "gpu", "Default": true, "MaxTime": "UNLIMITED", "Nodes": "g[01-10]"}},
		"slurm_user": map[string]any{"comment": "Slurm", "gid": 888, "group": "slurm", "home": "/var/lib/slurm", "name": "slurm",
			"shell": "/usr/sbin/nologin", "uid": 888},
	}
	r := play{inventory: "[slurmservers]\nhead\n[all:children]\nexec\n[exec]\ng[01:10]\n[exec:vars]\nslurm_roles=['exec']\n", hosts: "head",
		before: "sed -i /^slurm:/d /etc/passwd /etc/shadow /etc/group /etc/gshadow\n", // that this machine may have
		vars:   vars, programs: map[string]string{"sluice": sluice(t)},
		tasks: "- file: common/preflight\n- file: controller/user\n" + configure + checked + "- command: id slurm\n  register: slurm_id\n" +
			"- debug: {msg: 'user {{ slurm_id.stdout }}; nodes {{ groups.sluice_nodes | length }}'}\n"}.good(t)
	if !r.says("no faults; cluster lab") || !r.says("user uid=888(slurm) gid=888(slurm)") || !r.says("nodes 10") {
		t.Errorf("%s", r.out)
	}
	c := load(t, r)
	p := c.Partitions[0]
	if len(c.Partitions) != 1 || p.Name != "gpu" || !p.Default || p.MaxTimeMin != timespec.Unlimited || c.SlurmUser != "slurm" ||
		len(c.Nodes) != 10 {
		t.Errorf("%s", r.file(t, "etc/slurm/slurm.conf"))
	}
	const gres = "\nNodeName=g[01-10] File=/dev/nvidia[0-3] Name=gpu Type=a100\n"
	if got := r.file(t, "etc/slurm/gres.conf"); !strings.HasSuffix(got, gres) {
		t.Errorf("gres.conf: %s", got)
	}
}

// TestDeepOpsExample: DeepOps' example inventory and its variables, with hosts in it, give a controller that is the login host, too, and
// watches, and a configuration that the controller takes.
func TestDeepOpsExample(t *testing.T) {
	const inventory = `[all]
login01 ansible_host=127.0.0.1
gpu01   ansible_host=127.0.0.1
gpu02   ansible_host=127.0.0.1
[kube-master]
[etcd]
[kube-node]
[k8s-cluster:children]
kube-master
kube-node
[slurm-master]
login01
[slurm-nfs]
login01
[slurm-node]
gpu01
gpu02
[slurm-cache:children]
slurm-master
[slurm-nfs-client:children]
slurm-node
[slurm-metric:children]
slurm-master
[slurm-login:children]
slurm-master
[slurm-cluster:children]
slurm-master
slurm-node
slurm-cache
slurm-nfs
slurm-metric
slurm-login
`
	mount := func(path string) map[string]any {
		return map[string]any{"mountpoint": path, "path": path, "server": `{{ groups["slurm-master"][0] }}`, "options": "async,vers=3"}
	}
	vars := map[string]any{"sluice_preflight": false, "slurm_version": "20.11.3", "slurm_install_prefix": "/usr/local",
		"pmix_install_prefix": "/opt/deepops/pmix", "slurm_manage_gpus": true, "slurm_password": "x", "slurm_db_password": "x",
		"hosts_add_ansible_managed_hosts_groups": []string{"slurm-cluster"}, "slurm_enable_ha": false,
		"slurm_ha_state_save_location": "/sw/slurm", "slurm_configure_etc_hosts": true, "dns_mode": "none",
		"slurm_cluster_install_cuda": true, "slurm_cluster_install_nvidia_driver": true, "slurm_cluster_install_singularity": false,
		"nfs_exports":             []any{map[string]any{"path": "/home", "options": "*(rw,sync,no_root_squash)"}},
		"nfs_mounts":              []any{mount("/home"), mount("/sw")},
		"slurm_enable_nfs_server": true, "slurm_enable_nfs_client_nodes": true, "nfs_server_group": "slurm-master[0]",
		"slurm_install_lmod": true, "sm_prefix": "/sw", "sm_module_root": "{{ sm_prefix }}/modules", "slurm_install_hpcsdk": true,
		"slurm_cluster_install_openmpi": false, "servername": "{{ ansible_fqdn }}", "slurm_install_enroot": true,
		"slurm_install_pyxis": true, "slurm_pyxis_version": "0.8.1", "slurm_install_nhc": true,
		"slurm_health_check_program": "/usr/sbin/nhc", "slurm_enable_container_registry": true, "slurm_enable_monitoring": true,
		"slurm_monitoring_group": "slurm-master", "slurm_max_job_timelimit": "INFINITE",
		"docker_registry_mirrors": `{{ groups['slurm-master'] | map('regex_replace', '^(.*)$', 'http://\1:5000') | list }}`}
	const groups = "{{ groups.sluice_controllers | join(',') }};{{ groups.sluice_nodes | sort | join(',') }};" +
		"{{ groups.sluice_logins | default([]) | join(',') }};{{ groups.sluice_monitorings | join(',') }}"
	r := play{inventory: inventory, vars: vars, programs: map[string]string{"sluice": sluice(t)},
		hosts: "login01", before: "echo sluice:x:990:990::/:/usr/sbin/nologin >>/etc/passwd\n",
		tasks: "- file: common/preflight\n- set_fact: {sluice_missing: [], sluice_found_controller: {hostname: login01}}\n" +
			"- file: controller/configure\n" + checked +
			"- debug: {msg: \"is=" + groups + "=\"}\n"}.good(t)
	for _, want := range []string{"is=login01;gpu01,gpu02;;login01=", "no faults; cluster cluster",
		"have no effect: slurm_cluster_install_cuda, slurm_cluster_install_nvidia_driver"} {
		if !r.says(want) {
			t.Errorf("nobody says %q\n%s", want, r.out)
		}
	}
	if p := load(t, r).Partitions[0]; !p.Default || p.MaxTimeMin != timespec.Unlimited {
		t.Errorf("%s", r.file(t, "etc/slurm/slurm.conf"))
	}
}
