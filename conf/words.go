package conf

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// wordTable is the meaning of the words of a list such as SchedulerParameters.
type wordTable struct {
	works string            // words that have an effect, in Slurm's spelling
	vain  map[string]string // words of Slurm without effect here, by reason
	value func(string) bool // further words with an effect; nil: none
	trim  string            // optional prefix, such as "task/"
}

// Reasons shared by several words.
const (
	whyEager   = "the scheduler runs after every change, for as long as it has something to do"
	whyPlans   = "bf_max_job_test, bf_max_job_user, bf_reservations and bf_window limit how far the scheduler plans"
	whyHet     = "heterogeneous jobs are not supported"
	whySteps   = "steps are launched at once, or when there is room for them"
	whySeen    = "it is visible to all users"
	whyVictims = "the scheduler chooses the jobs to preempt by priority and by how little work is lost"
	whyBind    = "tasks are bound to the CPUs of their job by ConstrainCores of cgroup.conf"
	whyFlags   = "it adds nothing to the log; SlurmctldDebug=debug logs everything"
	whyTopo    = "the only topology is topology/tree, without options"
	whyRPC     = "calls are limited per user (docs/differences.md)"
	whyLinux   = "it applies to hardware that is not supported"
)

// wordTables are the keys whose value is a list of words, by lower-case key. Unknown words are a warning, not a fault: a newer
// Slurm may know them.
var wordTables = sync.OnceValue(func() map[string]wordTable {
	return map[string]wordTable{
		"schedulerparameters": {works: `bf_guard bf_head_guard bf_max_job_test bf_max_job_user bf_max_wait bf_order bf_policy bf_reservations
			bf_resolution bf_short_queue bf_window max_script_size max_switch_wait nohold_on_prolog_fail placement
			requeue_on_resume_failure`,
			vain: map[string]string{
				whyEager: `batch_sched_delay bf_busy_nodes bf_continue bf_interval bf_max_time bf_yield_interval bf_yield_rpc_cnt bf_yield_sleep
					build_queue_timeout default_queue_depth defer defer_batch max_sched_time partition_job_depth sched_interval
					sched_max_job_start sched_min_interval`,
				whyPlans: `bf_job_part_count_reserve bf_max_job_array_resv bf_max_job_assoc bf_max_job_part bf_max_job_start
					bf_max_job_user_part bf_min_age_reserve bf_min_prio_reserve bf_node_space_size bf_one_resv_per_job
					bf_running_job_reserve bf_topopt_enable bf_topopt_iterations bf_window_linear`,
				whyHet:                            `bf_hetjob_immediate bf_hetjob_prio disable_hetjob_steps enable_hetjob_steps whole_hetjob whole_pack`,
				whySteps:                          `salloc_wait_nodes sbatch_wait_nodes step_retry_count step_retry_time`,
				whyVictims:                        `preempt_reorder_count preempt_strict_order preempt_youngest_first`,
				whyRPC:                            `max_rpc_cnt`,
				"nodes are powered up at once":    `delay_boot`,
				whyAccounts:                       `assoc_limit_continue assoc_limit_stop bf_allow_magnetic_qos`,
				"licenses are always planned for": `bf_licenses`,
				"licenses with count 0 are handled as requested by the job": `allow_zero_lic`,
				"burst buffers are not supported":                           `bb_array_stage_cnt`,
				"MaxArraySize limits the size of an array":                  `max_array_tasks`,
				"see scontrol top and scontrol update nice=":                `enable_user_top`,
				"a dependency is looked up by job":                          `correspond_after_task_cnt`,
				"a job is not held when its environment cannot be loaded":   `requeue_setup_env_fail`,
				"node daemons start no login shells":                        `no_env_cache`,
				"there is no backup controller":                             `no_backup_scheduling`,
				"resources are reused as soon as a job has ended":           `reduce_completing_frag`,
				"cores are not reserved for the system":                     `spec_cores_first`,
				"a job keeps its time limit; --time-min may shorten it":     `time_min_as_soft_limit`,
				"jobs of one task are placed like all others":               `pack_serial_at_end Ignore_NUMA`,
				"jobs are checked at submission": `ignore_constraint_validation ` +
					`ignore_prefer_validation extra_constraints`,
				"a job keeps its size":                        `disable_job_shrink permit_job_expansion`,
				"commands are answered from the state itself": `enable_job_state_cache`,
			}},
		"slurmctldparameters": {works: "enable_configless idle_on_node_suspend max_user_accounting max_user_state relay_login relay_root",
			vain: map[string]string{
				"nodes connect to the controller, which needs no addresses of nodes": `cloud_dns cloud_reg_addrs`,
				"ResumeRate limits how many nodes are powered up":                    `max_powered_nodes`,
				"nodes are checked every second":                                     `power_save_interval power_save_min_interval`,
				"a node must have the configured memory":                             `node_reg_mem_percent`,
				whyRPC: `rl_enable rl_bucket_size rl_log_freq rl_refill_period rl_refill_rate rl_table_size enable_rpc_queue conmgr_max_connections
				conmgr_threads conmgr_use_poll conmgr_quick_poll conmgr_connect_timeout conmgr_read_timeout conmgr_wait_write_delay
				conmgr_write_timeout max_dbd_msg_action validate_nodeaddr_threads`,
				"strigger is not supported":                               `allow_user_triggers disable_triggers`,
				"the controller manages all steps":                        `enable_stepmgr`,
				"a job that is preempted gets SIGCONT and SIGTERM":        `preempt_send_user_signal`,
				"nodes reboot themselves, by RebootProgram":               `reboot_from_controller`,
				"only root and SlurmUser delete reservations":             `user_resv_delete`,
				"a restart takes about a second and does not affect jobs": `no_quick_restart`,
				"commands are answered from the state itself":             `enable_job_state_cache`,
			}},
		"slurmdparameters": {works: "capabilities config_overrides no_new_privs private_ipc",
			value: func(w string) bool { return strings.HasPrefix(w, "gpu_") },
			vain: map[string]string{
				"sockets are those of the processor":               `l3cache_as_socket numa_node_as_socket`,
				"a node daemon that ends does not affect its node": `shutdown_on_reboot`,
				"SPANK plugins are not supported":                  `contain_spank`,
				"types of cores are not distinguished":             `allow_ecores`,
				whyRPC: `conmgr_max_connections conmgr_threads conmgr_use_poll conmgr_quick_poll conmgr_connect_timeout
					conmgr_read_timeout conmgr_wait_write_delay conmgr_write_timeout`,
			}},
		"launchparameters": {works: `use_interactive_step`, vain: map[string]string{
			whySteps:                                 `test_exec mpir_use_nodeaddr`,
			whyLinux:                                 `cray_net_exclusive lustre_no_flush mem_sort`,
			"CPU frequencies are left to the kernel": `batch_step_set_cpu_freq`,
			"users are looked up on the node":        `enable_nss_slurm`,
			"groups are always those of the submitting process": `disable_send_gids send_gids`,
			"the shim of a step is not locked in memory":        `slurmstepd_memlock slurmstepd_memlock_all`,
			"limits are those of PropagateResourceLimits":       `ulimit_pam_adopt`,
		}},
		"jobsubmitplugins": {works: "lua", trim: "job_submit/", vain: map[string]string{
			"job_submit.lua can do the same; other plugins are not supported": `all_partitions cray_aries defaults logging ` +
				`partition pbs require_timelimit throttle`,
		}},
		"jobcomptype": {works: "filetxt none", trim: "jobcomp/", vain: map[string]string{
			"the only job completion plugin is jobcomp/filetxt": `elasticsearch kafka lua mysql script`,
		}},
		"mpidefault": {works: "none openmpi pmi2 pmix pmix_v2 pmix_v3 pmix_v4 pmix_v5", vain: map[string]string{
			"PMIx is supported up to version 5; without --mpi, tasks of srun do not find each other": `pmix_v6`,
			whyLinux: `cray_shasta`,
		}},
		"prologflags": {works: "Alloc Contain Serial", vain: map[string]string{
			"a batch script starts once the prolog of its own node has ended": `DeferBatch`,
			"salloc always waits for the end of the prolog":                   `NoHold`,
			"X11 forwarding is not supported":                                 `X11`,
			"the prolog runs as root, outside of the job's cgroup":            `RunInJob`,
			"a job whose prolog fails is requeued; see nohold_on_prolog_fail": `ForceRequeueOnFail`,
		}},
		"priorityflags": {vain: map[string]string{
			"shares are always compared by Fair Tree": `DEPTH_OBLIVIOUS FAIR_TREE NO_FAIR_TREE TICKET_BASED`,
			"factors are always normalized, from 0 to 1": `NO_NORMAL_ALL NO_NORMAL_ASSOC NO_NORMAL_PART NO_NORMAL_QOS
				NO_NORMAL_TRES`,
			"billing is the sum of its weighted resources":          `MAX_TRES MAX_TRES_GRES`,
			"age counts from when a job could have started":         `ACCRUE_ALWAYS`,
			"only pending jobs have priorities":                     `CALCULATE_RUNNING`,
			"a priority also falls when its factors fall":           `INCR_ONLY`,
			"the job size factor does not depend on the job's time": `SMALL_RELATIVE_TO_TIME`,
		}},
		"preemptparameters": {vain: map[string]string{
			whyVictims: `reorder_count strict_order youngest_first min_exempt_priority`,
			"a job that is preempted gets SIGCONT and SIGTERM": `send_user_signal`,
			"a job that is suspended stops at once":            `suspend_grace_time`,
			"licenses of a suspended job stay with it":         `reclaim_licenses`,
		}},
		"preempttype": {trim: "preempt/", works: "none partition_prio qos"},
		"taskplugin":  {trim: "task/", works: "affinity cgroup none", vain: map[string]string{whyLinux: `cray_aries`}},
		"taskpluginparam": {vain: map[string]string{
			whyBind:                                 `Autobind Boards Cores Cpusets None Sched Sockets Threads Verbose`,
			"cores are not reserved for the system": `SlurmdOffSpec`,
			"a step ends as OUT_OF_MEMORY when one of its processes does": `OOMKillStep`,
		}},
		"accountingstoreflags": {works: "job_env job_script job_comment", vain: map[string]string{
			"it is always stored":                          `job_extra`,
			"the paths of a job's files are always stored": `no_stdio`,
		}},
		"accountingstorageenforce": {works: "associations limits qos safe all none 0 1", vain: map[string]string{
			"accounting is always on; wckeys are not supported": `wckeys nojobs nosteps`,
		}},
		"accountingstorageparameters": {works: "PurgeJobAfter", vain: map[string]string{
			"accounting is built into the controller; there is no database server": `SSL_CA SSL_CAPATH SSL_CERT ` +
				`SSL_CIPHER SSL_KEY max_step_records`,
		}},
		"privatedata": {works: "cloud jobs none usage", vain: map[string]string{
			whySeen: `accounts events nodes partitions reservations users`,
		}},
		"metricstype":       {trim: "metrics/", works: "none openmetrics"},
		"metricsparameters": {works: "ignore_private_data listen tokens top"},
		"debugflags": {works: "AuditRPCs Backfill NO_CONF_HASH",
			vain: map[string]string{whyFlags: strings.Join(slices.DeleteFunc(slices.Clone(debugFlags),
				func(f string) bool { return f == "AuditRPCs" || f == "Backfill" || f == "NO_CONF_HASH" }), " ") + " ExtSensors TimeCray"}},
		"dependencyparameters": {works: "kill_invalid_depend", vain: map[string]string{
			"federations are not supported":                            `disable_remote_singleton`,
			"a job has at most 64 dependencies, followed to any depth": `max_depend_depth`,
		}},
		"topologyparam": {vain: map[string]string{
			whyTopo: `BlockAsNodeRank Dragonfly RoutePart RouteTree SwitchAsNodeRank TopoMaxSizeUnroll TopoOptional`,
		}},
		"selecttypeparameters": {works: "CR_CPU CR_CPU_Memory CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory CR_Memory CR_LLN NONE",
			vain: map[string]string{
				whyBind: `CR_CORE_DEFAULT_DIST_BLOCK CR_ONE_TASK_PER_CORE`,
				"nodes that are partly used are filled first anyway (SchedulerParameters=placement=)": `CR_Pack_Nodes`,
				"the shards of a job come from one GPU of a node": `MULTIPLE_SHARING_GRES_PJ ` +
					`ONE_TASK_PER_SHARING_GRES`,
				"SchedulerParameters=placement= determines which GPU is shared": `LL_SHARED_GRES`,
				"jobs can request --gres-flags=enforce-binding":                 `ENFORCE_BINDING_GRES`,
				whyLinux: `OTHER_CONS_RES OTHER_CONS_TRES`,
			}},
		"preemptmode": {works: "OFF CANCEL REQUEUE SUSPEND", vain: map[string]string{
			"jobs that share CPUs run side by side and do not take turns": `GANG`,
			"a job preempts jobs of lower priority in any partition":      `WITHIN`,
		}},
		"reconfigflags": {vain: map[string]string{
			"changes to partitions are not kept on a reconfigure": `KeepPartInfo KeepPartState KeepPowerSaveSettings KeepNodeStateFuture`}},
		"jobcontainertype": {trim: "job_container/", works: "tmpfs", vain: map[string]string{
			"jobs see the node's file systems, /tmp included": `cncu none`}},
		"namespacetype": {trim: "namespace/", works: "tmpfs", vain: map[string]string{
			"only namespace/tmpfs is supported, with job_container.conf": `linux none`}},
		"jobacctgatherparams": {works: "OverMemoryKill", vain: map[string]string{
			"memory use is read from the cgroup":       `NoShared UsePss`,
			"GPU usage is read if a driver reports it": `DisableGPUAcct`,
		}},
		"logtimeformat":        {works: strings.Join(LogTimeFormats, " ")},
		"healthchecknodestate": {works: `ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE START_ONLY`},
		"suspendexcstates": {works: "CLOUD DOWN DRAIN DYNAMIC_NORM FAIL INVALID_REG MAINTENANCE NOT_RESPONDING", vain: map[string]string{
			"FUTURE nodes are never powered down":             `DYNAMIC_FUTURE`,
			"set SuspendExcNodes for nodes that must stay up": `PERFCTRS PLANNED RESERVED`}},
	}
})

// find returns a word in Slurm's spelling, and why it has no effect; false if it is unknown.
func (t wordTable) find(word string) (name, why string, known bool) {
	word = strings.ToLower(word)
	if t.trim != "" {
		word = strings.TrimPrefix(word, t.trim)
	}
	for w := range strings.FieldsSeq(t.works) {
		if strings.ToLower(w) == word {
			return w, "", true
		}
	}
	for why, list := range t.vain {
		for w := range strings.FieldsSeq(list) {
			if strings.ToLower(w) == word {
				return w, why, true
			}
		}
	}
	return word, "", t.value != nil && t.value(word)
}

func (t wordTable) all() []string {
	out := strings.Fields(t.works)
	for _, list := range t.vain {
		out = append(out, strings.Fields(list)...)
	}
	slices.Sort(out)
	return out
}

// checkWords reports words of lists that are unknown or have no effect.
func (l *loader) checkWords() {
	for lower, table := range wordTables() {
		value, given := l.c.raw[lower]
		if !given {
			continue
		}
		k, at := keys()[lower], l.c.setAt[lower]
		var works bool
		vain := map[string][]string{}
		for _, word := range words(value) {
			name, _, _ := strings.Cut(word, "=")
			name, _, _ = strings.Cut(name, ":")
			_, why, known := table.find(strings.TrimSpace(name))
			switch {
			case !known:
				l.warn(at, cmp.Or(didYouMean(strings.TrimPrefix(name, table.trim), table.all()),
					"it has no effect; is it from a newer Slurm?"), "%s: unknown word %.60s", k.name, name)
			case why != "":
				vain[why] = append(vain[why], word)
			default:
				works = true
			}
		}
		if k.why != "" && !works {
			continue // the key is reported as a whole
		}
		for why, list := range vain {
			l.c.Ignored = append(l.c.Ignored, Ignored{Key: k.name + "=" + strings.Join(list, ","), Value: strings.Join(list, ","),
				Why: why, File: at.file, Line: at.line})
		}
	}
}
