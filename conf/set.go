package conf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// The functions of this file read one value each. Their errors say which values are valid; the caller adds key, file and line.

type setter = func(c *Config, value string) error

func text(field func(*Config) *string) setter {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

// maxClusterName keeps socket paths, which contain the name, below 108 bytes.
const maxClusterName = 64

// setClusterName converts the name to lower case, as Slurm does. Unlike Slurm it restricts the characters, because the name becomes
// part of paths (/run/sluice/NAME, cgroups, BasePath of job_container.conf).
func setClusterName(c *Config, v string) error {
	v = strings.ToLower(v)
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	switch {
	case v == "":
		return errors.New("a name is expected")
	case strings.ContainsFunc(v, bad), strings.ContainsAny(v[:1], ".-"):
		return fmt.Errorf("%.80s is not made of letters, digits, '-', '_' and '.', the first one a letter, a digit or '_'", v)
	case len(v) > maxClusterName:
		return fmt.Errorf("a name of %d characters is longer than %d", len(v), maxClusterName)
	}
	c.ClusterName = v
	return nil
}

// words splits a list at its commas; "(null)" and "" are empty.
func words(v string) []string {
	if v == "" || strings.EqualFold(v, "(null)") {
		return nil
	}
	var out []string
	for w := range strings.SplitSeq(v, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func list(field func(*Config) *[]string) setter {
	return func(c *Config, v string) error {
		*field(c) = words(v)
		return nil
	}
}

// limitNames are the limits that can propagate from the submitting process to its job (slurm.conf(5), PropagateResourceLimits).
var limitNames = []string{"AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"}

func limits(field func(*Config) *[]string) setter {
	return func(c *Config, v string) error {
		*field(c) = words(v)
		for _, w := range words(v) {
			if _, err := oneOf(strings.TrimPrefix(strings.ToUpper(w), "RLIMIT_"),
				append([]string{"ALL", "NONE"}, limitNames...)...); err != nil {
				return err
			}
		}
		return nil
	}
}

func params(field func(*Config) *Params) setter {
	return func(c *Config, v string) error {
		p := parseParams(v)
		for name, value := range p.value {
			if name == "max_switch_wait" && strings.Contains(value, ":") { // 24:00:00, the format of --switches
				s, err := timespec.ParseSeconds(value)
				if err != nil {
					return fmt.Errorf("%s=%s: %w", name, value, err)
				}
				value = strconv.FormatInt(s, 10)
				p.value[name] = value
			}
			if _, err := strconv.ParseUint(value, 10, 63); err != nil && slices.Contains(numericParams(), name) {
				return fmt.Errorf("%s=%s is not a whole number", name, value)
			}
			if name == "relay_root" || name == "relay_login" {
				if _, err := relayHosts(value); err != nil {
					return fmt.Errorf("%s=%s does not name hosts: %w", name, value, err)
				}
			}
			if choices := wordParams()[name]; choices != nil && !slices.Contains(choices, value) {
				return fmt.Errorf("%s=%s is not one of %s", name, value, strings.Join(choices, ", "))
			}
		}
		*field(c) = p
		return nil
	}
}

// numericParams are the numeric parameters of slurm.conf(5), SchedulerParameters, in lower case.
var numericParams = sync.OnceValue(func() []string {
	return strings.Fields(`batch_sched_delay bf_interval bf_job_part_count_reserve bf_max_job_array_resv
	bf_max_job_assoc bf_max_job_part bf_max_job_start bf_max_job_test bf_max_job_user bf_max_job_user_part bf_max_time
	bf_min_age_reserve bf_min_prio_reserve bf_node_space_size bf_resolution bf_window bf_window_linear bf_yield_interval
	bf_yield_sleep build_queue_timeout correspond_after_task_cnt default_queue_depth delay_boot max_array_tasks
	max_rpc_cnt max_sched_time max_script_size max_switch_wait partition_job_depth preempt_reorder_count sched_interval
	sched_max_job_start sched_min_interval step_retry_count step_retry_time max_depend_depth
	bf_guard bf_head_guard bf_max_wait bf_reservations bf_short_queue max_user_state max_user_accounting top`) // the last are Sluice's own
})

// wordParams are parameters of Sluice's own with a fixed set of values.
var wordParams = sync.OnceValue(func() map[string][]string {
	return map[string][]string{
		"bf_policy": {"easy", "conservative"}, "bf_order": {"merit", "sjbf", "queue"}, "placement": {"pack", "fgd", "bestfit"},
	}
})

func yesNo(field func(*Config) *bool) setter {
	return func(c *Config, v string) error { return readBool(field(c), v) }
}

// readBool accepts Slurm's spellings.
func readBool(field *bool, v string) error {
	switch strings.ToLower(v) {
	case "yes", "y", "true", "t", "up", "1":
		*field = true
	case "no", "n", "false", "f", "down", "0":
		*field = false
	default:
		return fmt.Errorf("%.40q is neither YES nor NO", v)
	}
	return nil
}

type integer interface{ ~int | ~int64 | ~uint32 }

func number[T integer](field func(*Config) *T, low, high int64) setter {
	return func(c *Config, v string) error { return readNumber(field(c), v, low, high) }
}

func readNumber[T integer](field *T, v string, low, high int64) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is not a whole number", v)
	}
	if n < low || n > high {
		return fmt.Errorf("%d is not between %d and %d", n, low, high)
	}
	*field = T(n)
	return nil
}

// endless reports whether v means no limit.
func endless(v string) bool {
	switch strings.ToUpper(v) {
	case "UNLIMITED", "INFINITE", "NONE", "-1":
		return true
	}
	return false
}

// maxSeconds bounds the timers, which Slurm keeps in 32 bits.
const maxSeconds = 1<<31 - 1

func seconds(field func(*Config) *int64) setter {
	return func(c *Config, v string) error { return readSeconds(field(c), v) }
}

// readSeconds reads a number of seconds; INFINITE, UNLIMITED, NONE and -1 mean no limit.
func readSeconds(field *int64, v string) error {
	if endless(v) {
		*field = timespec.Unlimited
		return nil
	}
	return readNumber(field, v, 0, maxSeconds)
}

// minutes reads a duration as timespec does: a bare number is minutes.
func minutes(field func(*Config) *int64) setter {
	return func(c *Config, v string) error { return readMinutes(field(c), v) }
}

func readMinutes(field *int64, v string) error {
	if strings.EqualFold(v, "none") {
		*field = timespec.Unlimited
		return nil
	}
	n, err := timespec.ParseMinutes(v)
	if err == nil {
		*field = n
	}
	return err
}

func mebibytes(field func(*Config) *uint64) setter {
	return func(c *Config, v string) error { return readMiB(field(c), v) }
}

// readMiB reads a memory size; no limit is stored as 0.
func readMiB(field *uint64, v string) error {
	if endless(v) {
		*field = 0
		return nil
	}
	n, err := tres.ParseMiB(v)
	if err == nil {
		*field = n
	}
	return err
}

// oneOf finds v among names, ignoring case.
func oneOf(v string, names ...string) (string, error) {
	for _, name := range names {
		if strings.EqualFold(v, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%.40q is not one of %s", v, strings.Join(names, ", "))
}

// debugLevel reads a name or a number. Unlike scontrol setdebug, slurm.conf may have a number above the last level, which then
// means the last level.
func debugLevel(field func(*Config) *string) setter {
	return func(c *Config, v string) error {
		level, err := DebugLevel(v)
		if err != nil && v != "" && strings.Trim(v, "0123456789") == "" {
			level, err = debugLevels[len(debugLevels)-1], nil
		}
		if err == nil {
			*field(c) = level
		}
		return err
	}
}

// setHost reads "name" or "name(address)".
func setHost(c *Config, v string) error {
	name, addr, ok := strings.Cut(v, "(")
	if ok {
		addr, ok = strings.CutSuffix(addr, ")")
		if !ok || addr == "" {
			return fmt.Errorf("%.60q is not of the form host or host(address)", v)
		}
	} else {
		addr = name
	}
	if name == "" || strings.ContainsAny(v, ",[]") {
		return fmt.Errorf("%.60q is not one host; repeat SlurmctldHost for each", v)
	}
	for _, h := range c.SlurmctldHosts {
		if h.Name == name {
			return fmt.Errorf("%s is given twice", name)
		}
	}
	c.SlurmctldHosts = append(c.SlurmctldHosts, Host{name, addr})
	return nil
}

// keep is for keys whose value is evaluated after all lines are read.
func keep(*Config, string) error { return nil }

// setControllerPort stores the first port of a range.
func setControllerPort(c *Config, v string) error {
	first, last, ranged := strings.Cut(v, "-")
	if ranged {
		end := 0
		if err := readNumber(&end, last, 1, 65535); err != nil {
			return err
		}
	}
	return readNumber(&c.SlurmctldPort, first, 1, 65535)
}

func setPortRange(c *Config, v string) error {
	first, last, ok := strings.Cut(v, "-")
	var r PortRange
	if !ok {
		return fmt.Errorf("%.40q is not of the form 60001-63000", v)
	}
	if err := readNumber(&r.First, first, 0, 65535); err != nil {
		return err
	}
	if err := readNumber(&r.Last, last, int64(r.First), 65535); err != nil {
		return err
	}
	c.SrunPortRange = r
	return nil
}

func setEnforcePartLimits(c *Config, v string) error {
	b := false
	if readBool(&b, v) == nil { // older files have YES and NO
		v = map[bool]string{true: "ALL", false: "NO"}[b]
	}
	limits, err := oneOf(v, "NO", "ANY", "ALL")
	if err == nil {
		c.EnforcePartLimits = limits
	}
	return err
}

var preemptModes = []string{"OFF", "GANG", "CANCEL", "REQUEUE", "SUSPEND", "WITHIN"}

// readPreemptMode reads a list of modes and returns it in Slurm's order.
func readPreemptMode(v string) ([]string, error) {
	given := map[string]bool{}
	for _, w := range words(v) {
		mode, err := oneOf(w, preemptModes...)
		if err != nil {
			return nil, err
		}
		given[mode] = true
	}
	if len(given) == 0 || given["OFF"] && len(given) > 1 {
		return nil, fmt.Errorf("%.40q is not a list of %s", v, strings.Join(preemptModes, ", "))
	}
	var out []string
	for _, mode := range preemptModes {
		if given[mode] {
			out = append(out, mode)
		}
	}
	return out, nil
}

func setPreemptMode(c *Config, v string) error {
	modes, err := readPreemptMode(v)
	if err == nil {
		c.PreemptMode = modes
	}
	return err
}

func setResetPeriod(c *Config, v string) error {
	period, err := oneOf(v, "NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY")
	if err == nil {
		c.PriorityUsageResetPeriod = period
	}
	return err
}

func setPriorityWeightTRES(c *Config, v string) (err error) {
	c.PriorityWeightTRES, err = tres.ParseWeights(v)
	return err
}

// setLicenses reads "foo:3,bar"; a count may also follow '=' or '*'.
func setLicenses(c *Config, v string) error {
	var out []License
	for _, w := range words(v) {
		l := License{Name: w, Count: 1}
		if i := strings.IndexAny(w, ":=*"); i >= 0 {
			l.Name = w[:i]
			if err := readNumber(&l.Count, w[i+1:], 0, maxSeconds); err != nil {
				return err
			}
		}
		if l.Name == "" || slices.ContainsFunc(out, func(o License) bool { return o.Name == l.Name }) {
			return fmt.Errorf("%.40q has no name or is given twice", w)
		}
		out = append(out, l)
	}
	c.Licenses = out
	return nil
}

// setJobDefaults reads "DefCpuPerGPU=2,DefMemPerGPU=100".
func setJobDefaults(c *Config, v string) error {
	return readJobDefaults(v, &c.DefCPUPerGPU, &c.DefMemPerGPUMiB)
}

func readJobDefaults(v string, cpus *int, mib *uint64) error {
	for _, w := range words(v) {
		name, value, _ := strings.Cut(w, "=")
		name, err := oneOf(name, "DefCpuPerGPU", "DefMemPerGPU")
		switch {
		case err != nil:
		case name == "DefCpuPerGPU":
			err = readNumber(cpus, value, 0, 65533)
		default:
			err = readMiB(mib, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
