package jobsubmit

import (
	"context"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// updated are the keys of scontrol update that a script sees as fields of job_desc, and may change. It only sees those that are given.
var updated = map[string]string{
	"account": "account", "admincomment": "admin_comment", "comment": "comment", "dependency": "dependency", "features": "features",
	"gres":    "gres",
	"jobname": "name", "name": "name", "licenses": "licenses", "nice": "nice", "partition": "partition", "priority": "priority",
	"qos":             "qos",
	"reservationname": "reservation", "timelimit": "time_limit", "timemin": "time_min", "wckey": "wckey", "mailuser": "mail_user",
	"extra":    "extra",
	"numtasks": "num_tasks", "numcpus": "min_cpus", "numnodes": "min_nodes", "reqnodelist": "req_nodes", "excnodelist": "exc_nodes",
	"requeue": "requeue",
	// Synonyms, and other keys that a site may want to limit.
	"trespernode": "gres", "nodelist": "req_nodes", "reqnodes": "req_nodes", "reservation": "reservation", "reqprocs": "min_cpus",
	"tresperjob": "tres_per_job", "trespertask": "tres_per_task", "trespersocket": "tres_per_socket", "cpuspertask": "cpus_per_task",
	"minmemorynode": "pn_min_memory", "minmemorycpu": "pn_min_memory_per_cpu", "starttime": "begin_time", "deadline": "deadline",
}

// Modify has slurm_job_modify check an update, once for each job that it names, and returns the keys as changed for the first one. The
// update is refused if it is refused for one of them. ids are as typed.
func (p *Plugin) Modify(ctx context.Context, v *state.View, uid uint32, ids []string, set []*pb.KeyValue) ([]*pb.KeyValue, *pb.Problem) {
	if len(ids) > maxJobs {
		return nil, pb.NewProblem(pb.CodeInvalidSpec, "%d jobs in one update, at most %d where job_submit.lua looks at updates",
			len(ids), maxJobs)
	}
	set, problem := absolute(v, ids, set)
	if problem != nil {
		return nil, problem
	}
	changed := set
	for i := range max(len(ids), 1) {
		now, problem := p.modify(ctx, v, uid, ids[min(i, len(ids)):], set)
		if problem != nil {
			return nil, problem
		}
		if i == 0 {
			changed = now
		}
	}
	return changed, nil
}

// maxJobs bounds the calls of the script for one update.
const maxJobs = 64

// absolute converts an increment of a time limit to the resulting limit: a script compares limits.
func absolute(v *state.View, ids []string, set []*pb.KeyValue) ([]*pb.KeyValue, *pb.Problem) {
	out := append([]*pb.KeyValue{}, set...)
	for i, kv := range out {
		sign := int64(1)
		switch strings.ToLower(kv.Key) {
		case "timelimit-":
			sign = -1
		case "timelimit+":
		default:
			continue
		}
		j := named(v, ids)
		by, err := timespec.ParseMinutes(kv.Value)
		if len(ids) != 1 || j == nil || err != nil || by == timespec.Unlimited || j.TimeLimitS == pb.Unlimited {
			return nil, pb.NewProblem(pb.CodeInvalidSpec, "%s=%s cannot be shown to the site's job_submit.lua", kv.Key, kv.Value).
				WithHint("give the new limit of one job: TimeLimit=…")
		}
		out[i] = &pb.KeyValue{Key: "TimeLimit", Value: strconv.FormatInt(max(int64(j.TimeLimitS)/60+sign*by, 0), 10)}
	}
	return out, nil
}

// modify calls the script once, for the job that the first id names.
func (p *Plugin) modify(ctx context.Context, v *state.View, uid uint32, ids []string, set []*pb.KeyValue) ([]*pb.KeyValue, *pb.Problem) {
	q := &request{Function: "slurm_job_modify", UID: uid, Cluster: v.Settings.Cluster, Parts: partitions(v), Desc: map[string]any{},
		Record: record(v, ids)}
	keyOf := map[string]int{}
	for i, kv := range set {
		if name := updated[strings.ToLower(strings.TrimRight(kv.Key, "+-"))]; name != "" {
			q.Desc[name] = described(name, kv.Value)
			keyOf[name] = i
		}
	}
	out, refusal := p.ask(ctx, q)
	if refusal == nil {
		refusal = refused(out.RC, nil)
	}
	if refusal != nil {
		return nil, refusal
	}
	now := append([]*pb.KeyValue{}, set...)
	for _, name := range sortedKeys(out.Desc) {
		value, ok := keyValue(name, out.Desc[name])
		switch i, given := keyOf[name]; {
		case !ok:
			if due, left := p.said.Says("modify " + name); due {
				p.log.Error("job_submit.lua sets a field of job_desc that cannot be set in slurm_job_modify", "field", name,
					"left_out", left)
			}
		case given:
			now[i] = &pb.KeyValue{Key: set[i].Key, Value: value}
		default:
			now = append(now, &pb.KeyValue{Key: keyFor(name), Value: value})
		}
	}
	return now, nil
}

// described converts a value to job_desc's form.
func described(name, value string) any {
	switch name {
	case "time_limit", "time_min":
		if n, err := timespec.ParseMinutes(value); err == nil && n != timespec.Unlimited {
			return float64(n)
		} else if err == nil {
			return float64(infinite)
		}
	case "priority", "num_tasks", "requeue", "min_cpus", "min_nodes", "begin_time", "deadline":
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			return n
		}
	case "nice":
		if n, err := strconv.Atoi(value); err == nil {
			return float64(niceZero + n)
		}
	}
	return value
}

// keyValue converts a value set by a script to a value of scontrol update.
func keyValue(name string, v any) (string, bool) {
	if keyFor(name) == "" {
		return "", false
	}
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case float64:
		switch {
		case (name == "time_limit" || name == "time_min") && v >= infinite:
			return "UNLIMITED", true
		case name == "nice":
			v -= niceZero
		}
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

func keyFor(name string) string {
	for _, key := range sortedKeys(updated) {
		if updated[key] == name {
			return key
		}
	}
	return ""
}

// named returns the job that the first id names, nil when there is none.
func named(v *state.View, ids []string) *pb.JobRecord {
	if len(ids) == 0 {
		return nil
	}
	base, _, _ := strings.Cut(ids[0], "_")
	id, err := strconv.ParseUint(base, 10, 32)
	if err != nil {
		return nil
	}
	return v.Jobs.Get(uint32(id))
}

// record returns job_rec: the job that the first id names.
func record(v *state.View, ids []string) map[string]any {
	rec := map[string]any{}
	j := named(v, ids)
	if j == nil {
		return rec
	}
	for name, f := range fields {
		if value := f.get(j.Spec); value != nil {
			rec[name] = value
		}
	}
	rec["job_id"], rec["partition"], rec["job_state"] = float64(j.Id), j.Partition, float64(j.State)
	return rec
}
