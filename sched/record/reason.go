package record

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
	WaitPriority             Code = "Priority"
	WaitResources            Code = "Resources"
	WaitDependency           Code = "Dependency"
	DependencyNeverSatisfied Code = "DependencyNeverSatisfied"
	BeginTime                Code = "BeginTime"
	JobHeldUser              Code = "JobHeldUser"
	JobHeldAdmin             Code = "JobHeldAdmin"
	JobHoldMaxRequeue        Code = "JobHoldMaxRequeue"
	JobArrayTaskLimit        Code = "JobArrayTaskLimit"
	WaitPartitionDown        Code = "PartitionDown"
	WaitPartitionInactive    Code = "PartitionInactive"
	PartitionNodeLimit       Code = "PartitionNodeLimit"
	PartitionConfig          Code = "PartitionConfig"
	MaxMemPerLimit           Code = "MaxMemPerLimit"
	PartitionTimeLimit       Code = "PartitionTimeLimit"
	ReqNodeNotAvail          Code = "ReqNodeNotAvail"
	WaitReservation          Code = "Reservation"
	ReservationDeleted       Code = "ReservationDeleted"
	BadConstraints           Code = "BadConstraints"
	WaitLicenses             Code = "Licenses"
	DeadLine                 Code = "DeadLine"
)
