// Package accounts is the table of the settings of accounts, users, associations and QOS. For each setting it has the name in
// sacctmgr(1), how a value is read and written, what it counts and over what, whether it is inherited, the pending reason of a job
// that hits it, and its column. Commands and controller share the table.
package accounts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// On says which records have a setting.
type On uint8

// The kinds of records.
const (
	Account On = 1 << iota
	User
	QOS
	// Assoc stands for both accounts and users: such a setting belongs to their associations.
	Assoc = Account | User
)

// Kind says how a value is read.
type Kind uint8

// The kinds of values. All kinds after List are a number or a vector of numbers.
const (
	Text   Kind = iota // anything
	Word               // a name
	Week               // hours of the week (ParseHours)
	List               // names; += and -= change it
	Count              // a number
	Wall               // a duration, typed in minutes or as a time; the number is seconds
	Clock              // a number of seconds, shown as a time
	Factor             // a fraction, in millionths
	Share              // a number, or "parent"
	Vector             // a number for each TRES
)

// None is the value of a limit that has been removed.
const None = math.MaxUint64

// ParentShare is the value of a Share set to "parent"; DefaultShare is the default.
const (
	ParentShare  = math.MaxInt32
	DefaultShare = 1
)

// Setting is a row of the table.
type Setting struct {
	Name   string
	Alias  []string // other names
	On     On
	Kind   Kind
	Part   string // set if this is one TRES of the vector Name: GrpCPUs is the part cpu of GrpTRES. A part has only its aliases as names
	Header string // of its column, and the column's width
	Width  int
	// Inherits: an association without the setting takes it from the account above.
	Inherits bool
}

// Names returns the setting's name, unless it is a part, and its aliases.
func (s *Setting) Names() []string {
	if s.Part != "" {
		return s.Alias
	}
	return append([]string{s.Name}, s.Alias...)
}

// Numeric reports whether records hold the setting as numeric values.
func (s *Setting) Numeric() bool { return s.Kind > List }

func names(text string) []string { return strings.Fields(text) }

// Table has every setting. The names are those of Slurm 22.05, except for Sluice's own.
var Table = []Setting{
	{Name: "Description", Alias: names("Descr"), On: Account | QOS, Kind: Text},
	{Name: "Organization", Alias: names("Org"), On: Account, Kind: Text},
	{Name: "Parent", Alias: names("ParentName"), On: Account, Kind: Word},
	{Name: "DefaultAccount", Alias: names("DefAccount"), On: User, Kind: Word},
	{Name: "AdminLevel", Alias: names("Admin"), On: User, Kind: Word},
	{Name: "DefaultQOS", Alias: names("DefQOS"), On: Assoc, Kind: Word, Inherits: true},
	{Name: "QOS", Alias: names("QOSLevel"), On: Assoc, Kind: List, Inherits: true},
	{Name: "Flags", On: QOS, Kind: List},
	{Name: "Preempt", On: QOS, Kind: List},
	{Name: "PreemptMode", On: QOS, Kind: Word},
	// Sluice's own:
	{Name: "LimitHours", On: Assoc | QOS, Kind: Week},
	{Name: "DefaultPartition", Alias: names("DefPartition"), On: Assoc, Kind: Word, Inherits: true},
	{Name: "DefaultGPUType", Alias: names("DefGPUType"), On: Assoc, Kind: Word, Inherits: true},
	{Name: "DefaultTime", Alias: names("DefTime"), On: Assoc, Kind: Wall, Header: "DefaultTime", Width: 11, Inherits: true},

	{Name: "Fairshare", Alias: names("Share Shares"), On: Assoc, Kind: Share, Header: "Share", Width: 9},
	{Name: "Priority", On: Assoc | QOS, Kind: Count, Header: "Priority", Width: 10, Inherits: true},
	{Name: "GraceTime", On: QOS, Kind: Clock, Header: "GraceTime", Width: 10},
	{Name: "UsageFactor", On: QOS, Kind: Factor, Header: "UsageFactor", Width: 11},
	{Name: "UsageThreshold", Alias: names("UsageThres"), On: QOS, Kind: Factor, Header: "UsageThres", Width: 10},
	{Name: "LimitFactor", On: QOS, Kind: Factor, Header: "LimitFactor", Width: 11},
	{Name: "PreemptExemptTime", On: QOS, Kind: Wall, Header: "PreemptExemptTime", Width: 19},
	{Name: "MinPrioThreshold", Alias: names("MinPriorityThreshold MinPrioThres"), On: Assoc | QOS, Kind: Count, Header: "MinPrioThres",
		Width: 12, Inherits: true},

	{Name: "GrpJobs", On: Assoc | QOS, Kind: Count, Header: "GrpJobs", Width: 7},
	{Name: "GrpJobsAccrue", On: Assoc | QOS, Kind: Count, Header: "GrpJobsAccrue", Width: 13},
	{Name: "GrpSubmitJobs", Alias: names("GrpSubmit"), On: Assoc | QOS, Kind: Count, Header: "GrpSubmit", Width: 9},
	{Name: "GrpTRES", On: Assoc | QOS, Kind: Vector, Header: "GrpTRES", Width: 13},
	{Name: "GrpTRES", Alias: names("GrpCPUs"), Part: "cpu", On: Assoc | QOS, Kind: Vector, Header: "GrpCPUs", Width: 8},
	{Name: "GrpTRES", Alias: names("GrpMem"), Part: "mem", On: Assoc | QOS, Kind: Vector, Header: "GrpMem", Width: 7},
	{Name: "GrpTRES", Alias: names("GrpNodes"), Part: "node", On: Assoc | QOS, Kind: Vector, Header: "GrpNodes", Width: 8},
	{Name: "GrpTRESMins", On: Assoc | QOS, Kind: Vector, Header: "GrpTRESMins", Width: 13},
	{Name: "GrpTRESMins", Alias: names("GrpCPUMins"), Part: "cpu", On: Assoc | QOS, Kind: Vector, Header: "GrpCPUMins", Width: 11},
	{Name: "GrpTRESRunMins", On: Assoc | QOS, Kind: Vector, Header: "GrpTRESRunMins", Width: 13},
	{Name: "GrpTRESRunMins", Alias: names("GrpCPURunMins"), Part: "cpu", On: Assoc | QOS, Kind: Vector, Header: "GrpCPURunMins",
		Width: 13},
	{Name: "GrpWall", On: Assoc | QOS, Kind: Wall, Header: "GrpWall", Width: 11},

	{Name: "MaxJobs", On: Assoc, Kind: Count, Header: "MaxJobs", Width: 7, Inherits: true},
	{Name: "MaxJobsAccrue", On: Assoc, Kind: Count, Header: "MaxJobsAccrue", Width: 13, Inherits: true},
	{Name: "MaxSubmitJobs", Alias: names("MaxSubmit"), On: Assoc, Kind: Count, Header: "MaxSubmit", Width: 9, Inherits: true},
	{Name: "MaxTRESPerJob", Alias: names("MaxTRES MaxTRESPJ"), On: Assoc | QOS, Kind: Vector, Header: "MaxTRES", Width: 13,
		Inherits: true},
	{Name: "MaxTRESPerJob", Alias: names("MaxCPUs MaxCPUsPerJob"), Part: "cpu", On: Assoc | QOS, Kind: Vector, Header: "MaxCPUs", Width: 8,
		Inherits: true},
	{Name: "MaxTRESPerJob", Alias: names("MaxNodes MaxNodesPerJob"), Part: "node", On: Assoc | QOS, Kind: Vector, Header: "MaxNodes",
		Width: 8, Inherits: true},
	{Name: "MaxTRESPerNode", On: Assoc | QOS, Kind: Vector, Header: "MaxTRESPerNode", Width: 14, Inherits: true},
	{Name: "MaxTRESMinsPerJob", Alias: names("MaxTRESMins"), On: Assoc | QOS, Kind: Vector, Header: "MaxTRESMins", Width: 13,
		Inherits: true},
	{Name: "MaxTRESMinsPerJob", Alias: names("MaxCPUMins"), Part: "cpu", On: Assoc | QOS, Kind: Vector, Header: "MaxCPUMins", Width: 11,
		Inherits: true},
	{Name: "MaxWall", Alias: names("MaxWallDurationPerJob MaxWallPJ"), On: Assoc | QOS, Kind: Wall, Header: "MaxWall", Width: 11,
		Inherits: true},

	{Name: "MaxJobsPerUser", Alias: names("MaxJobsPU MaxJobs"), On: QOS, Kind: Count, Header: "MaxJobsPU", Width: 9},
	{Name: "MaxJobsPerAccount", Alias: names("MaxJobsPA"), On: QOS, Kind: Count, Header: "MaxJobsPA", Width: 9},
	{Name: "MaxJobsAccruePerUser", Alias: names("MaxJobsAccruePU"), On: QOS, Kind: Count, Header: "MaxJobsAccruePU", Width: 15},
	{Name: "MaxJobsAccruePerAccount", Alias: names("MaxJobsAccruePA"), On: QOS, Kind: Count, Header: "MaxJobsAccruePA", Width: 15},
	{Name: "MaxSubmitJobsPerUser", Alias: names("MaxSubmitPU MaxSubmitJobsPU MaxSubmitJobs"), On: QOS, Kind: Count, Header: "MaxSubmitPU",
		Width: 11},
	{Name: "MaxSubmitJobsPerAccount", Alias: names("MaxSubmitPA MaxSubmitJobsPA"), On: QOS, Kind: Count, Header: "MaxSubmitPA", Width: 11},
	{Name: "MaxTRESPerUser", Alias: names("MaxTRESPU"), On: QOS, Kind: Vector, Header: "MaxTRESPU", Width: 13},
	{Name: "MaxTRESPerUser", Alias: names("MaxCPUsPerUser MaxCPUsPU"), Part: "cpu", On: QOS, Kind: Vector, Header: "MaxCPUsPU", Width: 9},
	{Name: "MaxTRESPerUser", Alias: names("MaxNodesPerUser MaxNodesPU"), Part: "node", On: QOS, Kind: Vector, Header: "MaxNodesPU",
		Width: 10},
	{Name: "MaxTRESPerAccount", Alias: names("MaxTRESPA"), On: QOS, Kind: Vector, Header: "MaxTRESPA", Width: 13},
	{Name: "MaxTRESRunMinsPerUser", Alias: names("MaxTRESRunMinsPU MaxTRESRunMins"), On: QOS, Kind: Vector,
		Header: "MaxTRESRunMinsPU", Width: 15},
	{Name: "MaxTRESRunMinsPerUser", Alias: names("MaxCPURunMins"), Part: "cpu", On: QOS, Kind: Vector, Header: "MaxCPURunMinsPU",
		Width: 15},
	{Name: "MaxTRESRunMinsPerAccount", Alias: names("MaxTRESRunMinsPA"), On: QOS, Kind: Vector, Header: "MaxTRESRunMinsPA", Width: 15},
	{Name: "MinTRESPerJob", Alias: names("MinTRES"), On: QOS, Kind: Vector, Header: "MinTRES", Width: 13},
	{Name: "MinTRESPerJob", Alias: names("MinCPUs"), Part: "cpu", On: QOS, Kind: Vector, Header: "MinCPUs", Width: 8},
}

// inEffect are the settings that have an effect. The others are stored and shown; sacctmgr warns when they are set.
var inEffect = names(`Description Organization Parent DefaultAccount AdminLevel DefaultQOS QOS Fairshare Priority
	GrpJobs GrpSubmitJobs GrpTRES GrpTRESMins GrpTRESRunMins GrpWall MaxJobs MaxSubmitJobs MaxTRESPerJob MaxTRESPerNode MaxTRESMinsPerJob MaxWall
	MaxJobsPerUser MaxSubmitJobsPerUser MaxTRESPerUser MaxJobsPerAccount MaxSubmitJobsPerAccount MaxTRESPerAccount MinTRESPerJob
	MaxTRESRunMinsPerUser MaxTRESRunMinsPerAccount
	GrpJobsAccrue MaxJobsAccrue MaxJobsAccruePerUser MaxJobsAccruePerAccount
	Preempt PreemptMode GraceTime PreemptExemptTime UsageFactor UsageThreshold
	LimitHours DefaultPartition DefaultGPUType DefaultTime`)

// InEffect reports whether the setting has an effect yet.
func (s *Setting) InEffect() bool { return slices.Contains(inEffect, s.Name) }

// Flags are the flags of a QOS, in Slurm's order.
var Flags = names(`DenyOnLimit EnforceUsageThreshold NoReserve PartitionMaxNodes PartitionMinNodes OverPartQOS PartitionTimeLimit
	RequiresReservation NoDecay UsageFactorSafe`)

// flagsInEffect are the flags that have an effect.
var flagsInEffect = names("DenyOnLimit EnforceUsageThreshold OverPartQOS RequiresReservation NoDecay UsageFactorSafe")

// Idle lists what has no effect yet: for Flags those among words, for any other setting its name.
func (s *Setting) Idle(words []string) (idle []string) {
	switch {
	case s.InEffect():
		return nil
	case s.Name != "Flags":
		return []string{s.Name}
	}
	for _, w := range words {
		if !slices.Contains(flagsInEffect, w) {
			idle = append(idle, w)
		}
	}
	return idle
}

// Find returns the setting of a kind of record by name, in any case, or nil.
func Find(on On, name string) *Setting {
	for i := range Table {
		s := &Table[i]
		if s.On&on != 0 && slices.ContainsFunc(s.Names(), func(n string) bool { return strings.EqualFold(n, name) }) {
			return s
		}
	}
	return nil
}

// Value is one number of a setting. TRES is empty unless the setting is a vector.
type Value struct {
	TRES string
	N    uint64
}

// maxCount bounds numbers: Slurm gives larger ones special meanings.
const maxCount = math.MaxUint32 - 3

// Parse reads the value of a numeric setting. As in Slurm, -1 removes a limit.
func (s *Setting) Parse(text string) ([]Value, error) {
	text = strings.Trim(text, `"'`)
	if s.Kind == Vector && s.Part == "" {
		return parseVector(text)
	}
	if text == "-1" {
		return []Value{{s.Part, None}}, nil
	}
	n, err := s.number(text)
	if err != nil {
		return nil, err
	}
	return []Value{{s.Part, n}}, nil
}

func (s *Setting) number(text string) (uint64, error) {
	switch s.Kind {
	case Wall:
		if m, err := timespec.ParseMinutes(text); err == nil && m >= 0 && m <= maxCount/60 {
			return uint64(m) * 60, nil
		}
		return 0, fmt.Errorf("%.40q is not a duration; write minutes, HH:MM:SS or DAYS-HH:MM:SS, or -1 for none", text)
	case Factor:
		if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f <= maxCount {
			return uint64(math.Round(f * 1e6)), nil
		}
		return 0, fmt.Errorf("%.40q is not a number of 0 or more", text)
	case Share:
		if strings.EqualFold(text, "parent") {
			return ParentShare, nil
		}
	case Vector:
		if s.Part == "mem" {
			return tres.ParseMiB(text)
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxCount || s.Kind == Share && n > ParentShare {
		return 0, fmt.Errorf("%.40q is neither a whole number from 0 to %d nor -1 for none", text, int64(maxCount))
	}
	return n, nil
}

// Check rejects a value that Parse cannot have returned.
func (s *Setting) Check(v Value) error {
	most := uint64(maxCount)
	if s.Kind == Vector {
		if l, err := tres.Parse(v.TRES + "=1"); err != nil || l[0].Name != v.TRES {
			return fmt.Errorf("is not a TRES")
		}
		most = 1 << 62
	} else if v.TRES != "" {
		return fmt.Errorf("does not take a list of TRES")
	}
	if s.Kind == Factor {
		most *= 1e6
	}
	if v.N > most && v.N != None {
		return fmt.Errorf("is more than %d", most)
	}
	return nil
}

// parseVector reads cpu=4,mem=1G,gres/gpu=-1.
func parseVector(text string) (out []Value, err error) {
	var gone, counts []string
	for part := range strings.SplitSeq(text, ",") {
		if name, ok := strings.CutSuffix(part, "=-1"); ok {
			gone, part = append(gone, name), name+"=0"
		}
		counts = append(counts, part)
	}
	list, err := tres.Parse(strings.Join(counts, ","))
	for _, it := range list {
		n := it.Count
		if slices.ContainsFunc(gone, func(name string) bool { return strings.EqualFold(name, it.Name) }) {
			n = None
		}
		out = append(out, Value{it.Name, n})
	}
	return out, err
}

// Show writes the values of a setting: "3", "1-00:00:00", "cpu=4,gres/gpu=2".
func (s *Setting) Show(values []Value) string {
	if s.Kind == Vector && s.Part == "" {
		var l tres.List
		for _, v := range values {
			if v.N != None {
				l = l.With(v.TRES, max(v.N, 1))
			}
		}
		for i := range l { // a limit of 0 is still a limit
			l[i].Count = values[slices.IndexFunc(values, func(v Value) bool { return v.TRES == l[i].Name })].N
		}
		slices.SortFunc(l, func(a, b tres.Item) int { return strings.Compare(a.Name, b.Name) })
		return l.String()
	}
	for _, v := range values {
		if v.TRES != s.Part || v.N == None {
			continue
		}
		switch {
		case s.Kind == Wall, s.Kind == Clock:
			return timespec.Clock(int64(v.N))
		case s.Kind == Factor:
			return strconv.FormatFloat(float64(v.N)/1e6, 'f', 6, 64)
		case s.Kind == Share && v.N == ParentShare:
			return "parent"
		}
		return strconv.FormatUint(v.N, 10)
	}
	return ""
}

// Compare orders values as records store them: by name, then by TRES.
func Compare(name1, tres1, name2, tres2 string) int {
	return cmp.Or(strings.Compare(name1, name2), strings.Compare(tres1, tres2))
}

// BadName explains why name cannot be the name of an account, a QOS or a user; "" if it can.
func BadName(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case len(name) > 200:
		return "it is longer than 200 bytes"
	}
	for _, r := range name {
		if r <= ' ' || r == 0x7f || r == 0xfffd || strings.ContainsRune(`,=|/\"'%:;*`, r) {
			return fmt.Sprintf("it has the character %q", r)
		}
	}
	if name[0] == '-' || name[0] == '+' {
		return "it begins with " + name[:1]
	}
	return ""
}
