package scontrol

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/shares"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// assocFilter has the arguments of scontrol show assoc_mgr: whom to show, and which kinds of records.
type assocFilter struct {
	users, accounts, qos       []string
	withAssocs, withQOS, withU bool
}

// isAssocMgr reports whether a word means the entity assoc_mgr, the only one that takes several arguments.
func isAssocMgr(word string) bool {
	return len(word) > 1 && len(word) <= len("assoc_mgr") && strings.EqualFold(word, "assoc_mgr"[:len(word)])
}

// assocMgr is scontrol show assoc_mgr [users=…] [accounts=…] [qos=…] [flags=assoc|users|qos]: shares, current use and past usage.
func (s *show) assocMgr(args []string) int {
	f, code, ok := s.assocFilter(args)
	if !ok {
		return code
	}
	c, code := s.dial("slurm_load_assoc_mgr_info")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	tree, reply, err := shares.Load(s.ctx, c, f.users)
	if err != nil {
		return s.failed("slurm_load_assoc_mgr_info error", err)
	}
	b, gap := []byte("Current Association Manager state\n"), "\n"
	if s.opts.oneLine {
		gap = ""
	}
	if f.withU {
		b = append(b, gap+"User Records\n"+gap...)
		for _, name := range shares.KnownUsers(f.users) {
			if uid, known := passwd.UID(name); known && f.named(name) {
				b = appendUser(b, name, uid)
			}
		}
	}
	parts, err := c.Partitions(s.ctx, &msg.PartitionsRequest{})
	if err != nil {
		return s.failed("slurm_load_partitions error", err)
	}
	now, err := inUse(s.ctx, c, view.Context(s.env, reply.GetNowNs()), parts.GetPartitions())
	if err != nil {
		return s.failed("slurm_load_jobs error", err)
	}
	set, err := loadLimits(s.ctx, c)
	if err != nil {
		return s.failed("slurm_load_assoc_mgr_info error", err)
	}
	if f.withAssocs {
		b = append(b, gap+"Association Records\n"+gap...)
		resources := shares.Resources(reply)
		tree.Each(func(n *shares.Node) {
			if f.wants(n) {
				b = s.appendAssoc(b, n, now, &set, resources)
			}
		})
	}
	if f.withQOS {
		b = s.appendQOS(b, f, gap, now, set.qos, reply)
	}
	return s.out(b)
}

func (s *show) assocFilter(args []string) (f assocFilter, code int, ok bool) {
	for _, arg := range args {
		key, value, has := strings.Cut(arg, "=")
		switch lower := strings.ToLower(key); {
		case lower == "":
		case !has:
			fmt.Fprintf(s.env.Stderr, "No value given for option %s\n", format.Escape(key))
			return f, 0, false
		case strings.HasPrefix("accounts", lower):
			f.accounts = strings.Split(value, ",")
		case strings.HasPrefix("users", lower):
			f.users = strings.Split(value, ",")
		case lower == "qos":
			f.qos = strings.Split(value, ",")
		case strings.HasPrefix("flags", lower):
			for word := range strings.SplitSeq(strings.ToLower(value), ",") {
				switch {
				case word != "" && strings.HasPrefix("associations", word):
					f.withAssocs = true
				case word != "" && strings.HasPrefix("users", word):
					f.withU = true
				case word == "qos":
					f.withQOS = true
				default:
					fmt.Fprintf(s.env.Stderr, "invalid flag '%s', valid options are 'Assoc, QOS, and/or Users'\n", format.Escape(word))
					return f, 0, false
				}
			}
		default:
			fmt.Fprintf(s.env.Stderr, "invalid entity: %s for keyword:show assoc_mgr\n", format.Escape(arg))
			return f, 1, false
		}
	}
	if !f.withAssocs && !f.withU && !f.withQOS {
		f.withAssocs, f.withU, f.withQOS = true, true, true
	}
	return f, 0, true
}

func (f *assocFilter) named(user string) bool {
	return len(f.users) == 0 || slices.Contains(f.users, user)
}

// wants reports whether to show a node. Records of accounts are shown whichever users are requested.
func (f *assocFilter) wants(n *shares.Node) bool {
	return (n.User == "" || f.named(n.User)) && (len(f.accounts) == 0 || slices.Contains(f.accounts, n.Account))
}

func appendUser(b []byte, name string, uid uint32) []byte {
	level, key := "Not Set", "(null)"
	if uid == 0 {
		level, key = "Administrator", ""
	}
	return fmt.Appendf(b, "UserName=%s(%d) DefAccount=%s DefWckey=%s AdminLevel=%s\n", format.Escape(name), uid, shares.Root, key, level)
}

// load is the current load of the jobs of one user and account.
type load struct {
	running, submitted, accruing int
	tres                         map[string]uint64
}

type loads map[string]*load // by "ACCOUNT UID", for accounts "ACCOUNT", for QOS "/QOS"

// inUse counts pending and running jobs. A partition's QOS counts the jobs in the partition, too.
func inUse(ctx context.Context, c *client.Client, fc *format.Context, parts []*msg.PartitionRecord) (loads, error) {
	l, qosOf := loads{}, map[string]string{}
	for _, p := range parts {
		qosOf[p.GetName()] = strings.ToLower(p.GetQos())
	}
	r := &msg.JobsRequest{States: []msg.JobState{msg.JobState_JOB_PENDING, msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED}}
	err := view.EachJob(ctx, c, r, fc, func(j *msg.JobRecord) {
		account := j.GetSpec().GetAccount()
		if account == "" {
			account = shares.Root
		}
		for _, key := range []string{account + " " + strconv.FormatUint(uint64(j.GetSpec().GetUid()), 10), account,
			"/" + j.GetSpec().GetQos()} {
			l.of(key).add(fc, j)
		}
		if q := qosOf[j.GetPartition()]; q != "" && q != j.GetSpec().GetQos() {
			l.of("/"+q).add(fc, j)
		}
		if account != shares.Root {
			l.of(shares.Root).add(fc, j)
		}
	})
	return l, err
}

func (l loads) of(key string) *load {
	if l[key] == nil {
		l[key] = &load{tres: map[string]uint64{}}
	}
	return l[key]
}

func (l *load) add(fc *format.Context, j *msg.JobRecord) {
	l.submitted++
	if j.GetState() == msg.JobState_JOB_PENDING {
		if ns := j.GetAccrueNs(); ns != 0 && ns/1e9 <= fc.Now.Unix() && j.GetPriority() != 0 {
			l.accruing++
		}
		return
	}
	l.running++
	if list, err := tres.Parse(j.GetAllocTres()); err == nil {
		for _, t := range list {
			l.tres[t.Name] += t.Count
		}
	}
}

// appendAssoc appends the record of an account, or of a user in it.
func (s *show) appendAssoc(b []byte, n *shares.Node, now loads, all *allLimits, resources []string) []byte {
	set := all.assoc[shares.ID(n)]
	user, parent, isDefault, key := "", "", "No", n.Account
	switch {
	case n.User != "":
		uid := n.UID
		if known, ok := passwd.UID(n.User); ok { // even for a user without usage
			uid = known
		}
		user = fmt.Sprintf("%s(%d)", format.Escape(n.User), uid)
		key += " " + strconv.FormatUint(uint64(uid), 10)
		if n.Account == cmp.Or(all.defaults[n.User], shares.Root) {
			isDefault = "Yes"
		}
	case n.Depth > 0:
		parent = fmt.Sprintf("%s(%d)", format.Escape(n.Above.Account), shares.ID(n.Above))
	}
	raw, of := n.Shares, n.Of
	if n.Depth == 0 {
		raw, of = 1, 1
	}
	block := fmt.Sprintf("ClusterName=%s Account=%s UserName=%s Partition= Priority=0 ID=%d\n"+
		"    SharesRaw/Norm/Level/Factor=%d/%.2f/%d/%.2f\n    UsageRaw/Norm/Efctv=%.2f/%.2f/%.2f\n"+
		"    ParentAccount=%s Lft=%d DefAssoc=%s\n",
		format.Escape(s.env.ClusterName()), format.Escape(n.Account), user, shares.ID(n), raw, n.Norm, of, n.Factor, n.Usage, n.NormUsage,
		n.Effective,
		parent, shares.ID(n), isDefault)
	l := now.of(key)
	block += fmt.Sprintf("    GrpJobs=%s(%d) GrpJobsAccrue=%s(%d)\n    GrpSubmitJobs=%s(%d) GrpWall=%s(%.2f)\n",
		set.of("GrpJobs", ""), l.running, set.of("GrpJobsAccrue", ""), l.accruing, set.of("GrpSubmitJobs", ""), l.submitted,
		set.of("GrpWall", ""), n.Used["wall"]/60) +
		grpTRES(n.Used, n.Left, l, set, resources)
	set = all.inherited(n)
	block += fmt.Sprintf("    MaxJobs=%s MaxJobsAccrue=%s MaxSubmitJobs=%s MaxWallPJ=%s\n", set.max("MaxJobs", l.running),
		set.max("MaxJobsAccrue", l.accruing), set.max("MaxSubmitJobs", l.submitted), set.or("MaxWall", "")) + set.perJob(resources) +
		"    MinPrioThresh=\n"
	return append(b, s.line(block)...)
}

// max formats a limit and its current use; empty if there is no limit.
func (l limits) max(name string, used int) string {
	if most := l.or(name, ""); most != "" {
		return fmt.Sprintf("%s(%d)", most, used)
	}
	return ""
}

// perJob returns the lines about limits per job.
func (l limits) perJob(resources []string) (text string) {
	for _, line := range [...][2]string{{"MaxTRESPJ", "MaxTRESPerJob"}, {"MaxTRESPN", "MaxTRESPerNode"},
		{"MaxTRESMinsPJ", "MaxTRESMinsPerJob"}} {
		text += "    " + line[0] + "=" + l.vector(line[1], resources) + "\n"
	}
	return text
}

// vector formats a limit on resources.
func (l limits) vector(name string, resources []string) string {
	var list []string
	for _, tres := range resources {
		if n := l.of(name, tres); n != "N" {
			list = append(list, tres+"="+n)
		}
	}
	return strings.Join(list, ",")
}

// grpTRES returns the lines about resources: in use, minutes used, minutes that running jobs may still use. N means no limit.
func grpTRES(used, left map[string]float64, l *load, set limits, resources []string) string {
	var now, mins, run []string
	for _, name := range resources {
		now = append(now, fmt.Sprintf("%s=%s(%d)", name, set.of("GrpTRES", name), l.tres[name]))
		mins = append(mins, fmt.Sprintf("%s=%s(%d)", name, set.of("GrpTRESMins", name), int64(used[name]/60)))
		run = append(run, fmt.Sprintf("%s=%s(%d)", name, set.of("GrpTRESRunMins", name), int64(left[name]/60)))
	}
	return "    GrpTRES=" + strings.Join(now, ",") + "\n    GrpTRESMins=" + strings.Join(mins, ",") + "\n    GrpTRESRunMins=" +
		strings.Join(run, ",") + "\n"
}

// appendQOS appends the requested QOS.
func (s *show) appendQOS(b []byte, f assocFilter, gap string, now loads, all []*msg.QosRecord, reply *msg.AccountUsageReply) []byte {
	b = append(b, gap...)
	none := true
	for _, q := range all {
		if len(f.qos) > 0 && !slices.Contains(f.qos, q.GetName()) {
			continue
		}
		if none {
			b = append(b, "QOS Records\n"+gap...)
			none = false
		}
		b = append(b, s.qosRecord(q, now.of("/"+q.GetName()), reply)...)
	}
	if none {
		return append(b, "No QOS currently cached in Slurm.\n"+gap...)
	}
	return b
}

func (s *show) qosRecord(q *msg.QosRecord, l *load, reply *msg.AccountUsageReply) string {
	var used, left map[string]float64
	for _, u := range reply.GetQos() {
		if u.GetName() == q.GetName() {
			used, left = shares.Amounts(u.GetUsed()), shares.Amounts(u.GetLeft())
		}
	}
	set := limits(q.GetValues())
	block := fmt.Sprintf("QOS=%s(%d)\n    UsageRaw=%.6f\n    GrpJobs=%s(%d) GrpJobsAccrue=%s(%d) GrpSubmitJobs=%s(%d) GrpWall=%s(%.2f)\n",
		format.Escape(q.GetName()), q.GetId(), used["billing"], set.of("GrpJobs", ""), l.running, set.of("GrpJobsAccrue", ""), l.accruing,
		set.of("GrpSubmitJobs", ""), l.submitted, set.of("GrpWall", ""), used["wall"]/60) +
		grpTRES(used, left, l, set, shares.Resources(reply)) +
		"    MaxWallPJ=" + set.or("MaxWall", "") + "\n" + set.perJob(shares.Resources(reply)) +
		"    MinPrioThresh= \n    MinTRESPJ=" + set.vector("MinTRESPerJob", shares.Resources(reply)) + "\n" +
		"    PreemptMode=OFF\n    Priority=" + set.or("Priority", "0") + "\n" +
		"    Account Limits\n        No Accounts\n    User Limits\n        No Users\n"
	if !s.opts.oneLine {
		return block
	}
	text := strings.NewReplacer("Account Limits No", "Account Limits=No", "User Limits No",
		"User Limits=No").Replace(strings.Join(strings.Fields(block), " ") + "\n")
	return strings.Replace(text, "MinPrioThresh= ", "MinPrioThresh=  ", 1)
}

// limits are the numeric settings of a record.
type limits []*msg.PolicyValue

// of formats a limit; N if there is none.
func (l limits) of(name, tres string) string {
	for _, v := range l {
		switch {
		case v.GetName() != name || v.GetTres() != tres:
		case name == "GrpWall", name == "MaxWall": // seconds
			return strconv.FormatUint(v.GetValue()/60, 10)
		default:
			return strconv.FormatUint(v.GetValue(), 10)
		}
	}
	return "N"
}

// or formats a limit; the text none without one.
func (l limits) or(name, none string) string {
	if most := l.of(name, ""); most != "N" {
		return most
	}
	return none
}

// allLimits has the limits of associations, by id, the QOS in the order of ids, and the default accounts of users.
type allLimits struct {
	assoc    map[int64]limits
	qos      []*msg.QosRecord
	defaults map[string]string
}

// inherited returns the limits of an association and of the accounts above it: the first of each kind applies.
func (all *allLimits) inherited(n *shares.Node) (l limits) {
	for ; n != nil; n = n.Above {
		l = append(l, all.assoc[shares.ID(n)]...)
	}
	return l
}

func loadLimits(ctx context.Context, c *client.Client) (all allLimits, err error) {
	all.assoc, all.defaults = map[int64]limits{}, map[string]string{}
	stream, err := c.Policy(ctx, &msg.PolicyRequest{Own: true})
	if err != nil {
		return all, err
	}
	err = view.EachPage(stream.Recv, func(p *msg.PolicyReply) {
		for _, row := range p.GetRows() {
			if a := row.GetAssoc(); a != nil {
				all.assoc[int64(a.GetId())] = a.GetValues()
			}
			if u := row.GetUser(); u != nil {
				all.defaults[u.GetName()] = u.GetDefaultAccount()
			}
			if row.GetQos() != nil {
				all.qos = append(all.qos, row.GetQos())
			}
		}
	})
	slices.SortFunc(all.qos, func(a, b *msg.QosRecord) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return all, err
}

// line formats a record on one line, with -o.
func (s *show) line(block string) string {
	if !s.opts.oneLine {
		return block
	}
	return strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n    ", " ") + "\n"
}
