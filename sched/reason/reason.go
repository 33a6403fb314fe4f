// Package reason has the reasons for which a job waits, as squeue shows them. The scheduler chooses among them in sched/pass and
// sched/placement, ctld/limit for limits of accounts and QOS; proto/sluice/v1/lifecycle.go has those that name holds.
package reason

// Reason is a Slurm reason and squeue's text for it.
type Reason struct {
	Code Code
	Text string // set when it says more than Code: "ReqNodeNotAvail, UnavailableNodes:n3"
}

// String returns squeue's text.
func (r Reason) String() string {
	if r.Text != "" {
		return r.Text
	}
	return string(r.Code)
}

// Code is a Slurm reason word.
type Code string

// Reasons, as squeue(1) names them. "" and None mean that there is no reason yet.
const (
	None                     Code = "None"
	Priority                 Code = "Priority"
	Resources                Code = "Resources"
	Dependency               Code = "Dependency"
	DependencyNeverSatisfied Code = "DependencyNeverSatisfied"
	BeginTime                Code = "BeginTime"
	JobHeldUser              Code = "JobHeldUser"
	JobHeldAdmin             Code = "JobHeldAdmin"
	JobHoldMaxRequeue        Code = "JobHoldMaxRequeue"
	JobArrayTaskLimit        Code = "JobArrayTaskLimit"
	PartitionDown            Code = "PartitionDown"
	PartitionInactive        Code = "PartitionInactive"
	PartitionNodeLimit       Code = "PartitionNodeLimit"
	PartitionConfig          Code = "PartitionConfig"
	MaxMemPerLimit           Code = "MaxMemPerLimit"
	PartitionTimeLimit       Code = "PartitionTimeLimit"
	ReqNodeNotAvail          Code = "ReqNodeNotAvail"
	Reservation              Code = "Reservation"
	ReservationDeleted       Code = "ReservationDeleted"
	BadConstraints           Code = "BadConstraints"
	Licenses                 Code = "Licenses"
	DeadLine                 Code = "DeadLine"
)
