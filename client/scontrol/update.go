package scontrol

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// pair is one KEY=VALUE word of update, create or delete. add is '+' or '-' for KEY+=VALUE and KEY-=VALUE.
type pair struct {
	word, key, value string
	add              string
	given            bool // there was a '='
}

// pairs reads the words; at the beginning, "job 12" is the same as "job=12".
func pairs(args []string) []pair {
	return readPairs(args, func(at int, _, next string) bool { return at == 0 && !strings.Contains(next, "=") })
}

// jobPairs reads the words of an update of jobs, in which the value of any key may be the next word; Nice and ResetAccrueTime need
// none.
func jobPairs(args []string) []pair {
	return readPairs(args, func(at int, key, next string) bool {
		name, known := canonicalKey(jobKeys(), key)
		return !known || name != "Nice" && name != "ResetAccrueTime"
	})
}

// readPairs reads the words; apart reports whether the value of a key without "=" is the next word. at is the number of preceding
// pairs.
func readPairs(args []string, apart func(at int, key, next string) bool) []pair {
	var out []pair
	for i := 0; i < len(args); i++ {
		key, value, given := strings.Cut(args[i], "=")
		if !given && i+1 < len(args) && apart(len(out), key, args[i+1]) {
			i++
			value, given = args[i], true
		}
		p := pair{word: args[i], key: key, value: value, given: given}
		if n := len(key); given && n > 1 && (key[n-1] == '+' || key[n-1] == '-') {
			p.key, p.add = key[:n-1], key[n-1:]
		}
		out = append(out, p)
	}
	return out
}

// entityOf returns the entity of a command line: the first word that names one.
func entityOf(list []pair) (entity string, at int) {
	for i, p := range list {
		switch key := strings.ToLower(p.key); {
		case key == "jobid" || key == "job" || key == "jobname":
			return "job", i
		case len(key) >= 3 && strings.HasPrefix("nodename", key):
			return "node", i
		case len(key) >= 4 && strings.HasPrefix("partitionname", key):
			return "partition", i
		case len(key) >= 3 && strings.HasPrefix("reservationname", key):
			return "reservation", i
		case len(key) >= 4 && strings.HasPrefix("stepid", key):
			return "step", i
		case key == "slurmctlddebug":
			return "debug", i
		}
	}
	return "", -1
}

func (c *control) update(args []string) int {
	if len(args) == 0 {
		return c.fail("too few arguments for update keyword")
	}
	if isReservation(args) {
		return c.updateReservation(args)
	}
	list := pairs(args)
	entity, at := entityOf(list)
	if entity == "job" {
		list = jobPairs(args)
		entity, at = entityOf(list)
	}
	if entity == "" {
		return c.fail("No valid entity in update command",
			`Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"`)
	}
	subject := list[at]
	if apart := entity == "node" || entity == "partition"; apart && !strings.Contains(args[0], "=") {
		return c.fail("scontrol: error: Invalid input: "+args[0]+"  Request aborted", "slurm_update error: No error",
			"write "+args[0]+"="+subject.value)
	}
	rest := append(append([]pair{}, list[:at]...), list[at+1:]...)
	switch entity {
	case "job":
		return c.updateJob(subject, rest)
	case "node":
		return c.updateNode(subject, rest)
	case "partition":
		return c.updatePartition(subject, rest, false)
	}
	if entity == "step" {
		return c.updateStep(subject, rest)
	}
	return c.unsupported("update " + entity)
}

// notUpdatable is Slurm's error about an unknown key, with the nearest one that exists.
func (c *control) notUpdatable(word string, keys []string, key string) int {
	lines := []string{"Update of this parameter is not supported: " + word, "Request aborted"}
	if near := nearest(keys, key); near != "" {
		lines = append(lines, "did you mean "+near+"?")
	}
	return c.fail(lines...)
}

// canonicalKey finds a key by its name or an unambiguous abbreviation of at least three letters, in any case.
func canonicalKey(keys []string, key string) (string, bool) {
	found := ""
	for _, k := range keys {
		if strings.EqualFold(k, key) {
			return k, true
		}
		if len(key) >= 3 && len(key) < len(k) && strings.EqualFold(k[:len(key)], key) {
			if found != "" {
				return "", false
			}
			found = k
		}
	}
	return found, found != ""
}

// nearest returns the key that was probably meant by a mistyped one: by spelling, else by its beginning or as a part.
func nearest(keys []string, key string) string {
	if near := opt.Nearest(keys, key); near != "" {
		return near
	}
	for _, k := range keys {
		if len(key) >= 3 && (strings.HasPrefix(strings.ToLower(k), strings.ToLower(key[:3])) ||
			strings.Contains(strings.ToLower(k), strings.ToLower(key))) {
			return k
		}
	}
	return ""
}

func jobKeys() []string {
	return []string{"Account", "AdminComment", "ArrayTaskThrottle", "ClusterFeatures", "Clusters", "Comment", "Contiguous", "CoreSpec",
		"CPUsPerTask", "Deadline", "DelayBoot", "Dependency", "EligibleTime", "EndTime", "ExcNodeList", "Extra", "Features", "Gres",
		"JobName", "Licenses", "MailType", "MailUser", "MinCPUsNode", "MinMemoryCPU", "MinMemoryNode", "MinTmpDiskNode", "Name", "Nice",
		"NodeList", "NumCPUs", "NumNodes", "NumTasks", "OverSubscribe", "Partition", "Prefer", "Priority", "QOS", "Reboot", "ReqCores",
		"ReqNodeList", "ReqNodes", "ReqProcs", "ReqSockets", "ReqThreads", "Requeue", "ReservationName", "ResetAccrueTime", "Shared",
		"SiteFactor",
		"StartTime", "StdErr", "StdIn", "StdOut", "Switches", "TasksPerNode", "ThreadSpec", "TimeLimit", "TimeMin", "TresPerJob",
		"TresPerNode",
		"TresPerSocket", "TresPerTask", "UserID", "wait-for-switch", "WCKey", "WorkDir"}
}

func (c *control) updateJob(subject pair, rest []pair) int {
	if len(rest) == 0 {
		return c.fail("No changes specified")
	}
	req := &msg.UpdateJobRequest{}
	user := ""
	for _, p := range rest {
		key, ok := canonicalKey(jobKeys(), p.key)
		switch {
		case !p.given && key == "Nice":
			p.value = "100"
		case key == "ResetAccrueTime" && p.given:
			return c.notUpdatable(p.word, jobKeys(), p.key)
		case key == "ResetAccrueTime":
		case key == "UserID" && strings.EqualFold(subject.key, "jobname"):
			user = p.value
			continue
		case !p.given:
			return c.fail("Invalid input: "+p.word, "Request aborted")
		case !ok:
			return c.notUpdatable(p.word, jobKeys(), p.key)
		}
		if (key == "TimeLimit" || key == "TimeMin") && p.add == "" && strings.IndexAny(p.value, "+-") == 0 && p.value != "-1" {
			p.add, p.value = p.value[:1], p.value[1:]
		}
		value, refusal := jobValue(c.env.Now(), key, p.value)
		if refusal != nil {
			return c.fail(refusal...)
		}
		req.Set = append(req.Set, &msg.KeyValue{Key: key + p.add, Value: value})
	}
	ids, exit := c.subjects(subject, user)
	if exit != 0 || len(ids) == 0 {
		return exit
	}
	req.Ids = ids
	if exit := c.checkDecrement(ids, req.Set); exit != 0 {
		return exit
	}
	conn, err := c.dial()
	if err != nil {
		return c.callFailed("slurm_update error", err)
	}
	reply, err := conn.UpdateJob(context.Background(), req)
	if err != nil {
		return c.callFailed("slurm_update error", err)
	}
	return c.outcomes(reply.GetOutcomes(), ids, "")
}

// checkDecrement rejects reducing the limit of a job by more than it has.
func (c *control) checkDecrement(ids []string, set []*msg.KeyValue) int {
	at := slices.IndexFunc(set, func(kv *msg.KeyValue) bool { return kv.GetKey() == "TimeLimit-" })
	if at < 0 || len(ids) != 1 {
		return 0
	}
	jobs, err := c.listJobs(&msg.JobsRequest{Ids: ids})
	minutes, _ := timespec.ParseMinutes(set[at].GetValue())
	if err != nil || len(jobs) != 1 || jobs[0].GetTimeLimitS() == msg.Unlimited {
		return 0 // the controller reports the error
	}
	if has := int64(jobs[0].GetTimeLimitS()) / 60; minutes > has {
		return c.failf("TimeLimit decrement larger than current time limit (%d > %d)", minutes, has)
	}
	return 0
}

// subjects returns the jobs that an update names; jobname= means all with that name, or only those of the user in userid=.
func (c *control) subjects(subject pair, user string) (ids []string, exit int) {
	if !strings.EqualFold(subject.key, "jobname") {
		ids, bad := jobIDs(subject.value)
		if bad != "" || slices.ContainsFunc(ids, isStep) {
			return nil, c.jobFailed(subject.value, msg.NewProblem(msg.CodeInvalidJobID, ""), "")
		}
		return ids, 0
	}
	jobs, err := c.listJobs(&msg.JobsRequest{Names: []string{subject.value}})
	if err != nil {
		return nil, c.callFailed("slurm_load_jobs error", err)
	}
	uid := uint32(0)
	if user != "" {
		var known bool
		if uid, known = passwd.UID(user); !known {
			return nil, c.fail("Invalid UserID: "+user, "Request aborted")
		}
	}
	for _, j := range jobs {
		if user == "" || j.GetSpec().GetUid() == uid {
			ids = append(ids, fmt.Sprint(j.GetId()))
		}
	}
	if len(ids) == 0 && user != "" {
		return nil, c.failf("No jobs with user ID %d and name '%s'", uid, subject.value)
	}
	if len(ids) == 0 {
		return nil, c.failf("No jobs with name '%s'", subject.value)
	}
	return ids, 0
}

func nodeKeys() []string {
	return []string{"ActiveFeatures", "AvailableFeatures", "Comment", "CPUBind", "Extra", "Features", "Gres", "InstanceId", "InstanceType",
		"NodeAddr", "NodeHostname", "Reason", "ResumeAfter", "State", "Weight"}
}

func NodeStates() []string {
	return []string{"ALLOCATED", "CANCEL_REBOOT", "DOWN", "DRAIN", "FAIL", "FUTURE", "IDLE", "MIXED", "NORESP", "POWER_DOWN",
		"POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "POWER_UP", "RESUME", "UNDRAIN", "UNKNOWN"}
}

func (c *control) updateNode(subject pair, rest []pair) int {
	req := &msg.UpdateNodeRequest{Nodes: subject.value}
	reason, needsReason := false, false
	for _, p := range rest {
		key, ok := canonicalKey(nodeKeys(), p.key)
		if !ok || !p.given {
			return c.notUpdatable(p.word, nodeKeys(), p.key)
		}
		if key == "State" {
			state, ok := canonicalKey(NodeStates(), p.value)
			if !ok {
				return c.fail("Invalid input: "+p.word, "Request aborted",
					"Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN",
					"Not all states are valid given a node's prior state")
			}
			p.value = state
			needsReason = state == "DOWN" || state == "DRAIN" || state == "FAIL"
		}
		if wrong := badWeight(p.value); key == "Weight" && wrong != "" {
			return c.fail("scontrol: error: Weight value ("+p.value+") is "+wrong, "No changes specified")
		}
		reason = reason || (key == "Reason" && p.value != "")
		req.Set = append(req.Set, &msg.KeyValue{Key: key, Value: p.value})
	}
	if len(req.Set) == 0 {
		return c.fail("No changes specified")
	}
	if needsReason && !reason {
		return c.fail("You must specify a reason when DOWNING or DRAINING a node. Request denied")
	}
	if err := c.sendNodes(req); err != nil {
		return c.callFailed("slurm_update error", err)
	}
	return 0
}

// failHint prints Slurm's lines, followed by the remedy.
func (c *control) failHint(lines []string, hint string) int {
	if hint != "" {
		lines = append(lines, hint)
	}
	return c.fail(lines...)
}

// badWeight explains why the weight of a node is invalid; "" if it is valid.
func badWeight(value string) string {
	const most = 0xfffffff0
	switch n, err := strconv.ParseInt(value, 10, 64); {
	case err != nil:
		return "not a valid number"
	case n < 0:
		return "less than zero"
	case n > most:
		return fmt.Sprintf("greater than %d", most)
	}
	return ""
}

func partitionKeys() []string {
	return []string{"AllocNodes", "AllowAccounts", "AllowGroups", "AllowQos", "Alternate", "CpuBind", "Default", "DefaultTime",
		"DefMemPerCPU",
		"DefMemPerNode", "DenyAccounts", "DenyQos", "DisableRootJobs", "ExclusiveUser", "GraceTime", "Hidden", "JobDefaults", "LLN",
		"MaxCPUsPerNode", "MaxCPUsPerSocket", "MaxMemPerCPU", "MaxMemPerNode", "MaxNodes", "MaxTime", "MinNodes", "Nodes", "OverSubscribe",
		"OverTimeLimit", "PowerDownOnIdle", "PreemptMode", "Priority", "PriorityJobFactor", "PriorityTier", "QOS", "ReqResv", "RootOnly",
		"Shared", "State", "TRESBillingWeights"}
}

func (c *control) updatePartition(subject pair, rest []pair, create bool) int {
	req := &msg.UpdatePartitionRequest{Name: subject.value, Create: create}
	for _, p := range rest {
		key, ok := canonicalKey(partitionKeys(), p.key)
		if !ok && strings.EqualFold(p.key, "St") {
			key, ok = "State", true
		}
		if !ok || !p.given {
			return c.fail("scontrol: error: Update of this parameter is not supported: "+p.word, "", "scontrol: error: Request aborted",
				"slurm_update error: No error")
		}
		value, refusal, hint := partitionValue(key, p.word, p.value)
		switch {
		case refusal == nil:
		case create || key == "MaxNodes":
			return c.failHint(refusal, hint)
		default:
			return c.failHint(append(refusal, "slurm_update error: No error"), hint)
		}
		p.value = value
		req.Set = append(req.Set, &msg.KeyValue{Key: key + p.add, Value: p.value})
	}
	if len(req.Set) == 0 && !create {
		return c.fail("scontrol: error: No changes specified")
	}
	before := "slurm_update error"
	if create {
		before = "Error creating the partition"
	}
	return c.sendPartition(req, before)
}

func (c *control) sendPartition(req *msg.UpdatePartitionRequest, before string) int {
	conn, err := c.dial()
	if err == nil {
		_, err = conn.UpdatePartition(context.Background(), req)
	}
	if err != nil {
		return c.callFailed(before, err)
	}
	return 0
}

func (c *control) create(args []string) int {
	if len(args) == 0 {
		return c.fail("too few arguments for create keyword")
	}
	if isReservation(args) {
		return c.createReservation(args)
	}
	list := pairs(args)
	entity, at := entityOf(list)
	if entity == "node" || strings.EqualFold(args[0], "node") {
		return c.createNodes(args)
	}
	if entity != "partition" {
		return c.fail("No valid entity in create command",
			`Input line must include either "reservation", "nodename" or "partition" entity.`)
	}
	if !strings.Contains(args[0], "=") {
		return c.fail("scontrol: error: Invalid input: "+args[0]+"  Request aborted", "write "+args[0]+"="+list[at].value)
	}
	return c.updatePartition(list[at], append(append([]pair{}, list[:at]...), list[at+1:]...), true)
}

func (c *control) remove(args []string) int {
	if len(args) == 0 {
		return c.fail("too few arguments for delete keyword")
	}
	if isReservation(args[:1]) {
		return c.deleteReservation(args)
	}
	list := pairs(args)
	entity, at := entityOf(list)
	switch {
	case entity == "" || !list[at].given:
		return c.fail("scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
	case entity == "node":
		return c.deleteNodes(list[at], args)
	case entity != "partition":
		return c.fail("Invalid deletion entity: " + args[0])
	}
	return c.sendPartition(&msg.UpdatePartitionRequest{Name: list[at].value, Delete: true}, "delete_partition "+strings.Join(args, " "))
}
