package pb

import (
	"fmt"
	"strings"
)

// Code is a Slurm error number: tools read the phrase, REST clients the number.
type Code uint32

// Codes that Sluice returns. Numbers and phrases are those of a real Slurm.
const (
	CodeProtocolVersion    Code = 1005
	CodeAway               Code = 1800 // from a host's relay that cannot reach the controller
	CodeInvalidPartition   Code = 2000
	CodeNoDefaultPartition Code = 2001
	CodeAccessDenied       Code = 2002
	CodePartitionGroup     Code = 2003
	CodeNodesNotInPart     Code = 2004
	CodeTooManyCPUs        Code = 2005
	CodeNodeCount          Code = 2006
	CodeScriptMissing      Code = 2009
	CodeUserID             Code = 2010
	CodePathTooLong        Code = 2012
	CodeNodeConfig         Code = 2014
	CodePartConfig         Code = 2015
	CodeNodesBusy          Code = 2016
	CodeInvalidJobID       Code = 2017
	CodeInvalidNodeName    Code = 2018
	CodeTransition         Code = 2020
	CodeAlreadyDone        Code = 2021
	CodeJobPending         Code = 2024
	CodeTaskCount          Code = 2025
	CodeInvalidNodeState   Code = 2028
	CodeInvalidFeature     Code = 2029
	CodeNotSupported       Code = 2036
	CodeDisabled           Code = 2037
	CodeDependency         Code = 2038
	CodeBatchOnly          Code = 2039
	CodeJobHeld            Code = 2042
	CodeInvalidAccount     Code = 2045
	CodeInvalidLicenses    Code = 2048
	CodeInvalidTimeLimit   Code = 2051
	CodeResvInvalid        Code = 2053
	CodeInvalidArray       Code = 2081
	CodeInvalidQOS         Code = 2066
	CodeInvalidGres        Code = 2072
	CodeInvalidTime        Code = 2054
	CodeInvalidMemory      Code = 2044
	CodeQueueFull          Code = 9101 // Sluice's own: too many queued jobs
	CodeNoSpace            Code = 9102 // Sluice's own: the state cannot be written
	CodeTooLarge           Code = 9103 // Sluice's own: script or environment over the limit
	CodeInvalidSpec        Code = 9104 // Sluice's own: malformed value
	CodeRateLimited        Code = 9105 // Sluice's own
	CodeConfig             Code = 9106 // Sluice's own: slurm.conf has faults
	CodeNotRunning         Code = 2085
	CodeNotSuspended       Code = 2087
	CodeResvAccess         Code = 2052
	CodeResvBusy           Code = 2055
	CodeResvOverlap        Code = 2058
	CodeResvStarted        Code = 2104
	CodeInvalidGroup       Code = 2113
	CodeResvEmpty          Code = 2080
	CodeResvDuplicate      Code = 2082
	CodeCircularDependency Code = 2071
	CodeFinished           Code = 2084
	CodePartClosed         Code = 2070
	CodeAccountingPolicy   Code = 2050
	CodeMissingTimeLimit   Code = 8000
	CodeSubmitPlugin       Code = 9107 // job_submit.lua rejected the job
	CodeUnspecified        Code = 9108 // where Slurm has no number
	CodeNotPending         Code = 2073
	CodePartitionInUse     Code = 2075
	CodeInvalidNice        Code = 2123
	CodeInvalidTimeMin     Code = 2124
	CodeActiveFeatures     Code = 2031
	CodePriorityReset      Code = 2095
	CodeInvalidJobDefaults Code = 2117
	CodeInvalidWeights     Code = 2116
	CodeBatchFeature       Code = 2114
	CodeInvalidPrefer      Code = 2133
	CodeCoreResvUpdate     Code = 2109
	CodeCoreCount          Code = 2111
	CodeResvNoSkip         Code = 2128
	CodeResvUserGroup      Code = 2129
	CodeTooManyTasks       Code = 2041
	CodePrologRunning      Code = 2061
	CodeStepLimit          Code = 2076
	CodeSuspended          Code = 2077
	CodeDuplicateStep      Code = 2110
)

var phrases = map[Code]string{
	CodeProtocolVersion:    "Incompatible versions of client and server code",
	CodeAway:               "Unable to contact slurm controller (connect failure)",
	CodeInvalidPartition:   "Invalid partition name specified",
	CodeNoDefaultPartition: "No partition specified or system default partition",
	CodeAccessDenied:       "Access/permission denied",
	CodePartitionInUse:     "Partition is in use",
	CodePartitionGroup:     "User's group not permitted to use this partition",
	CodeNodesNotInPart:     "Requested nodes not in this partition",
	CodeTaskCount:          "Task count specification invalid",
	CodeTooManyCPUs:        "More processors requested than permitted",
	CodeNodeCount:          "Node count specification invalid",
	CodeScriptMissing:      "Job script not specified",
	CodeUserID:             "Invalid user id",
	CodePathTooLong:        "Pathname of a file, directory or other parameter too long",
	CodeNodeConfig:         "Requested node configuration is not available",
	CodePartConfig:         "Requested partition configuration not available now",
	CodeNodesBusy:          "Requested nodes are busy",
	CodeInvalidJobID:       "Invalid job id specified",
	CodeInvalidNodeName:    "Invalid node name specified",
	CodeTransition:         "Job can not be altered now, try again later",
	CodeAlreadyDone:        "Job/step already completing or completed",
	CodeJobPending:         "Job is pending execution",
	CodeInvalidNodeState:   "Invalid node state specified",
	CodeInvalidFeature:     "Invalid feature specification",
	CodeNotSupported:       "Requested operation not supported on this system",
	CodeDisabled:           "Requested operation is presently disabled",
	CodeDependency:         "Job dependency problem",
	CodeBatchOnly:          "Only batch jobs are accepted or processed",
	CodeJobHeld:            "Job is in held state, pending scheduler release",
	CodeInvalidAccount:     "Invalid account or account/partition combination specified",
	CodeInvalidLicenses:    "Invalid license specification",
	CodeInvalidTimeLimit:   "Requested time limit is invalid (missing or exceeds some limit)",
	CodeResvInvalid:        "Requested reservation is invalid",
	CodeInvalidArray:       "Invalid job array specification",
	CodeInvalidQOS:         "Invalid qos specification",
	CodeInvalidGres:        "Invalid generic resource (gres) specification",
	CodeInvalidTime:        "Invalid time specified",
	CodeInvalidMemory:      "Memory required by task is not available",
	CodeQueueFull:          "Slurm temporarily unable to accept job, sleeping and retrying",
	CodeNoSpace:            "Slurm controller cannot write its state",
	CodeTooLarge:           "Job script or environment too large",
	CodeInvalidSpec:        "Invalid job specification",
	CodeConfig:             "The configuration has faults",
	CodeRateLimited:        "Too many requests",
	CodeNotRunning:         "Job is not running",
	CodeNotSuspended:       "Job is not suspended",
	CodeResvAccess:         "Access denied to requested reservation",
	CodeResvBusy:           "Requested reservation is in use",
	CodeResvOverlap:        "Requested reservation overlaps with another reservation",
	CodeInvalidGroup:       "Invalid group id",
	CodeResvStarted:        "Reservation already started",
	CodeResvEmpty:          "Reservation request lacks users, groups or accounts",
	CodeResvDuplicate:      "Duplicate reservation name",
	CodeCircularDependency: "Circular job dependency",
	CodeFinished:           "Job has already finished",
	CodeNotPending:         "Job is no longer pending execution",
	CodePartClosed:         "Required partition not available (inactive or drain)",
	CodeInvalidNice:        "Invalid --nice value",
	CodeAccountingPolicy:   "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
	CodeMissingTimeLimit:   "Time limit specification required, but not provided",
	CodeSubmitPlugin:       "Unspecified error",
	CodeUnspecified:        "Unspecified error",
	CodeBatchFeature:       "Job --batch option is invalid or not a subset of --constraints",
	CodeInvalidPrefer:      "Invalid preferred feature specification",
	CodeCoreResvUpdate:     "Core-based reservation can not be updated",
	CodeCoreCount:          "Core count for reservation node list is not consistent!",
	CodeTooManyTasks:       "Requested more tasks than available processors",
	CodePrologRunning:      "PrologSlurmctld is still running",
	CodeStepLimit:          "Step limit reached for this job",
	CodeSuspended:          "Job is current suspended, requested operation disabled",
	CodeDuplicateStep:      "Duplicate job step id",
	CodeResvNoSkip:         "Reservation given is not skipable, try deleting instead",
	CodeResvUserGroup:      "Reservations can't have users and groups specified, only one or the other",
	CodeActiveFeatures:     "Active features not subset of available features",
	CodePriorityReset:      "Changes to job priority are not persistent, change nice instead",
	CodeInvalidJobDefaults: "Invalid JobDefaults specification",
	CodeInvalidWeights:     "Invalid TRESBillingWeights specification",
	CodeInvalidTimeMin:     "Invalid time-min specification (exceeds job's time or other limits)",
}

// Phrase returns Slurm's text for the error, "" if it has none.
func (c Code) Phrase() string { return phrases[c] }

// NewProblem returns a Problem with the phrase of code; the detail compares the request with what is available.
func NewProblem(code Code, format string, args ...any) *Problem {
	return &Problem{Code: uint32(code), Phrase: phrases[code], Detail: Singular(fmt.Sprintf(format, args...))}
}

// oneOf has the singular of counted nouns.
var oneOf = map[string]string{"CPUs": "CPU", "GPUs": "GPU", "jobs": "job", "nodes": "node", "tasks": "task", "cores": "core",
	"sockets": "socket", "devices": "device", "numbers": "number", "files": "file", "processes": "process"}

// Singular writes "1 CPU" for "1 CPUs": messages are written in the plural.
func Singular(text string) string {
	for i := 0; ; {
		n := strings.Index(text[i:], "1 ")
		if n < 0 {
			return text
		}
		i += n + len("1 ")
		if before := i - len("1 ") - 1; before >= 0 && text[before] != ' ' && text[before] != '(' {
			continue
		}
		end := i
		for end < len(text) && (text[end]|0x20 >= 'a' && text[end]|0x20 <= 'z') {
			end++
		}
		if one, ok := oneOf[text[i:end]]; ok {
			text = text[:i] + one + text[end:]
		}
	}
}

// WithHint adds a remedy.
func (p *Problem) WithHint(format string, args ...any) *Problem {
	p.Hint = Singular(fmt.Sprintf(format, args...))
	return p
}

// WithLead adds a line that Slurm prints before the phrase.
func (p *Problem) WithLead(format string, args ...any) *Problem {
	p.Lead = fmt.Sprintf(format, args...)
	return p
}

// Error implements error: the phrase, then the diagnosis.
func (p *Problem) Error() string {
	s := p.GetPhrase()
	if p.GetDetail() != "" {
		s += ": " + p.GetDetail()
	}
	if p.GetHint() != "" {
		s += " (" + p.GetHint() + ")"
	}
	return s
}
