package jobsubmit

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// field is a field of job_desc: get returns a string, a float64 or nil; set takes the same, and is nil for a read-only field.
type field struct {
	get func(*pb.JobSpec) any
	set func(*pb.JobSpec, any) error
}

// fields are the supported fields of job_desc. Writing another one has no effect and is logged, as with Slurm.
var fields = map[string]field{
	"account":           text(func(s *pb.JobSpec) *string { return &s.Account }),
	"admin_comment":     text(func(s *pb.JobSpec) *string { return &s.AdminComment }),
	"array_inx":         text(func(s *pb.JobSpec) *string { return &s.Array }),
	"batch_features":    text(func(s *pb.JobSpec) *string { return &s.BatchFeatures }),
	"comment":           text(func(s *pb.JobSpec) *string { return &s.Comment }),
	"container":         text(func(s *pb.JobSpec) *string { return &s.Container }),
	"cpus_per_tres":     text(func(s *pb.JobSpec) *string { return &s.CpusPerTres }),
	"dependency":        text(func(s *pb.JobSpec) *string { return &s.Dependency }),
	"exc_nodes":         text(func(s *pb.JobSpec) *string { return &s.ExcNodes }),
	"extra":             text(func(s *pb.JobSpec) *string { return &s.Extra }),
	"features":          text(func(s *pb.JobSpec) *string { return &s.Features }),
	"gres":              text(func(s *pb.JobSpec) *string { return &s.TresPerNode }),
	"licenses":          text(func(s *pb.JobSpec) *string { return &s.Licenses }),
	"mail_user":         text(func(s *pb.JobSpec) *string { return &s.MailUser }),
	"mem_per_tres":      text(func(s *pb.JobSpec) *string { return &s.MemPerTres }),
	"name":              text(func(s *pb.JobSpec) *string { return &s.Name }),
	"partition":         text(func(s *pb.JobSpec) *string { return &s.Partition }),
	"prefer":            text(func(s *pb.JobSpec) *string { return &s.Prefer }),
	"qos":               text(func(s *pb.JobSpec) *string { return &s.Qos }),
	"req_nodes":         text(func(s *pb.JobSpec) *string { return &s.ReqNodes }),
	"reservation":       text(func(s *pb.JobSpec) *string { return &s.Reservation }),
	"std_err":           text(func(s *pb.JobSpec) *string { return &s.StdErr }),
	"std_in":            text(func(s *pb.JobSpec) *string { return &s.StdIn }),
	"std_out":           text(func(s *pb.JobSpec) *string { return &s.StdOut }),
	"tres_bind":         text(func(s *pb.JobSpec) *string { return &s.TresBind }),
	"tres_freq":         text(func(s *pb.JobSpec) *string { return &s.TresFreq }),
	"tres_per_job":      text(func(s *pb.JobSpec) *string { return &s.TresPerJob }),
	"tres_per_node":     text(func(s *pb.JobSpec) *string { return &s.TresPerNode }),
	"tres_per_socket":   text(func(s *pb.JobSpec) *string { return &s.TresPerSocket }),
	"tres_per_task":     text(func(s *pb.JobSpec) *string { return &s.TresPerTask }),
	"wckey":             text(func(s *pb.JobSpec) *string { return &s.Wckey }),
	"work_dir":          text(func(s *pb.JobSpec) *string { return &s.WorkDir }),
	"cores_per_socket":  number(func(s *pb.JobSpec) *uint32 { return &s.CoresPerSocket }, noVal16),
	"cpus_per_task":     number(func(s *pb.JobSpec) *uint32 { return &s.CpusPerTask }, noVal16),
	"mail_type":         number(func(s *pb.JobSpec) *uint32 { return &s.MailType }, 0),
	"max_nodes":         number(func(s *pb.JobSpec) *uint32 { return &s.MaxNodes }, noVal),
	"min_nodes":         number(func(s *pb.JobSpec) *uint32 { return &s.MinNodes }, noVal),
	"ntasks_per_core":   number(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerCore }, noVal16),
	"ntasks_per_gpu":    number(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerTres }, noVal16),
	"ntasks_per_node":   number(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerNode }, noVal16),
	"ntasks_per_socket": number(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerSocket }, noVal16),
	"ntasks_per_tres":   number(func(s *pb.JobSpec) *uint32 { return &s.NtasksPerTres }, noVal16),
	"num_tasks":         number(func(s *pb.JobSpec) *uint32 { return &s.NumTasks }, noVal),
	"pn_min_cpus":       number(func(s *pb.JobSpec) *uint32 { return &s.PnMinCpus }, noVal16),
	"sockets_per_node":  number(func(s *pb.JobSpec) *uint32 { return &s.SocketsPerNode }, noVal16),
	"threads_per_core":  number(func(s *pb.JobSpec) *uint32 { return &s.ThreadsPerCore }, noVal16),
	"time_limit":        minutes(func(s *pb.JobSpec) *uint32 { return &s.TimeLimitS }),
	"time_min":          minutes(func(s *pb.JobSpec) *uint32 { return &s.TimeMinS }),
	"begin_time":        stamp(func(s *pb.JobSpec) *int64 { return &s.BeginNs }),
	"end_time":          stamp(func(s *pb.JobSpec) *int64 { return &s.DeadlineNs }),
	"argc":              {get: func(s *pb.JobSpec) any { return float64(len(s.Args)) }},
	"group_id":          {get: func(s *pb.JobSpec) any { return float64(s.Gid) }},
	"user_id":           {get: func(s *pb.JobSpec) any { return float64(s.Uid) }},
	"user_name":         {get: func(s *pb.JobSpec) any { return s.User }},
	"contiguous": {get: func(s *pb.JobSpec) any { return map[bool]float64{true: 1}[s.Contiguous] },
		set: func(s *pb.JobSpec, v any) error { return flag(&s.Contiguous, v) }},
	"reboot": {get: func(s *pb.JobSpec) any { return map[bool]float64{true: 1, false: noVal16}[s.Reboot] },
		set: func(s *pb.JobSpec, v any) error { return flag(&s.Reboot, v) }},
	"min_cpus":         {get: func(s *pb.JobSpec) any { return float64(max(s.NumTasks, 1)) * float64(max(s.CpusPerTask, 1)) }},
	"nice":             {get: getNice, set: setNice},
	"priority":         {get: getPriority, set: setPriority},
	"requeue":          {get: getRequeue, set: setRequeue},
	"shared":           {get: getShared, set: setShared},
	"pn_min_memory":    {get: getMemory, set: setMemory},
	"min_mem_per_cpu":  {get: func(s *pb.JobSpec) any { return positive(s.MemPerCpuMib) }, set: setMemPerCPU},
	"min_mem_per_node": {get: func(s *pb.JobSpec) any { return positive(s.MemPerNodeMib) }, set: setMemPerNode},
}

func text(of func(*pb.JobSpec) *string) field {
	return field{get: func(s *pb.JobSpec) any {
		if v := *of(s); v != "" {
			return v
		}
		return nil
	}, set: func(s *pb.JobSpec, v any) error {
		switch v := v.(type) {
		case nil:
			*of(s) = ""
		case string:
			*of(s) = v
		default:
			*of(s) = fmt.Sprint(v)
		}
		return nil
	}}
}

// whole reads a non-negative number; unset is true for Slurm's values for "not set".
func whole(v any) (n uint64, unset bool, err error) {
	f, ok := v.(float64)
	switch {
	case v == nil, ok && (f == noVal || f == noVal16 || f == noVal64):
		return 0, true, nil
	case !ok || f < 0 || f != float64(uint64(f)):
		return 0, false, fmt.Errorf("%v is not a number from 0 on", v)
	}
	return uint64(f), false, nil
}

func number(of func(*pb.JobSpec) *uint32, unset float64) field {
	return field{get: func(s *pb.JobSpec) any {
		if n := *of(s); n != 0 {
			return float64(n)
		}
		return unset
	}, set: func(s *pb.JobSpec, v any) error {
		n, _, err := whole(v)
		if err == nil {
			*of(s) = uint32(min(n, infinite))
		}
		return err
	}}
}

func minutes(of func(*pb.JobSpec) *uint32) field {
	return field{get: func(s *pb.JobSpec) any {
		switch n := *of(s); n {
		case 0:
			return float64(noVal)
		case pb.Unlimited:
			return float64(infinite)
		default:
			return float64((uint64(n) + 59) / 60)
		}
	}, set: func(s *pb.JobSpec, v any) error {
		n, _, err := whole(v)
		switch {
		case err != nil:
			return err
		case n*60 >= infinite:
			*of(s) = pb.Unlimited
		default:
			*of(s) = uint32(n * 60)
		}
		return nil
	}}
}

func stamp(of func(*pb.JobSpec) *int64) field {
	return field{get: func(s *pb.JobSpec) any { return float64(*of(s) / 1e9) }, set: func(s *pb.JobSpec, v any) error {
		n, _, err := whole(v)
		if err == nil {
			*of(s) = int64(min(n, 1<<33)) * 1e9
		}
		return err
	}}
}

func flag(to *bool, v any) error {
	n, _, err := whole(v)
	if err == nil {
		*to = n != 0
	}
	return err
}

func positive(n uint64) any {
	if n == 0 {
		return nil
	}
	return float64(n)
}

func getNice(s *pb.JobSpec) any {
	if s.Nice == 0 {
		return float64(noVal)
	}
	return float64(niceZero + int64(s.Nice))
}

func setNice(s *pb.JobSpec, v any) error {
	n, unset, err := whole(v)
	switch {
	case err != nil:
		return err
	case unset:
		s.Nice = 0
	default:
		s.Nice = int32(int64(min(n, infinite)) - niceZero)
	}
	return nil
}

func getPriority(s *pb.JobSpec) any {
	switch {
	case s.Hold:
		return 0.0
	case s.Priority == 0:
		return float64(noVal)
	}
	return float64(s.Priority)
}

func setPriority(s *pb.JobSpec, v any) error {
	n, unset, err := whole(v)
	if err == nil {
		s.Hold, s.Priority = n == 0 && !unset, uint32(min(n, infinite))
	}
	return err
}

func getRequeue(s *pb.JobSpec) any {
	return map[uint32]float64{pb.Unset: noVal16, pb.Yes: 1, pb.No: 0}[s.Requeue]
}

func setRequeue(s *pb.JobSpec, v any) error {
	n, unset, err := whole(v)
	switch {
	case err != nil:
		return err
	case unset:
		s.Requeue = pb.Unset
	case n == 0:
		s.Requeue = pb.No
	default:
		s.Requeue = pb.Yes
	}
	return nil
}

// sharings are the words of --exclusive and --oversubscribe by Slurm's numbers.
var sharings = map[float64]string{noVal16: "", 0: "exclusive", 1: "oversubscribe", 2: "user", 3: "mcs"}

func getShared(s *pb.JobSpec) any {
	for n, word := range sharings {
		if word == s.Sharing {
			return n
		}
	}
	return float64(noVal16)
}

func setShared(s *pb.JobSpec, v any) error {
	f, number := v.(float64)
	if v == nil {
		f, number = noVal16, true
	}
	word, ok := sharings[f]
	if !ok || !number {
		return fmt.Errorf("%v is not one of JOB_SHARED_NONE, _OK, _USER and _MCS", v)
	}
	s.Sharing = word
	return nil
}

func getMemory(s *pb.JobSpec) any {
	switch {
	case s.MemPerCpuMib != 0:
		return perCPU + float64(s.MemPerCpuMib)
	case s.MemPerNodeMib != 0:
		return float64(s.MemPerNodeMib)
	case s.MemAll:
		return 0.0
	}
	return float64(noVal64)
}

func setMemory(s *pb.JobSpec, v any) error {
	if f, ok := v.(float64); ok && f >= perCPU && f != noVal64 {
		return fmt.Errorf("a Lua number cannot represent memory per CPU exactly; set min_mem_per_cpu")
	}
	return setMemPerNode(s, v)
}

func setMemPerNode(s *pb.JobSpec, v any) error {
	n, unset, err := whole(v)
	if err == nil {
		s.MemPerNodeMib, s.MemPerCpuMib, s.MemPerGpuMib, s.MemAll = n, 0, 0, n == 0 && !unset
	}
	return err
}

func setMemPerCPU(s *pb.JobSpec, v any) error {
	n, _, err := whole(v)
	if err == nil {
		s.MemPerCpuMib, s.MemPerNodeMib, s.MemPerGpuMib, s.MemAll = n, 0, 0, false
	}
	return err
}
