package pb

// Unlimited stands for "no limit" in every uint32 limit (Slurm's INFINITE).
const Unlimited uint32 = 0xffffffff

// GresUnread is what stands as the fault of all devices of a node that has never had a controller, until it has been told of gres.conf:
// they are not given out, and nothing is wrong with them.
const GresUnread = "gres.conf has not been read yet"

// Job flags: shown instead of the base state, in the order of these constants (surface page, "States").
const (
	JobCompleting uint32 = 1 << iota
	JobStageOut
	JobConfiguring
	JobResizing
	JobRequeued
	JobRequeueHold
	JobSpecialExit
	JobStopped
	JobRevoked
	JobResvDelHold
	JobSignaling
	JobPowerUp // beside CONFIGURING: some of its nodes are being powered up
)

// Node flags, combined with the base state of a node.
const (
	NodeDrain uint32 = 1 << iota
	NodeCompleting
	NodeNoRespond
	NodeFail
	NodeMaint
	NodeReserved
	NodePlanned
	NodePoweredDown
	NodePoweringUp
	NodePoweringDown
	NodePowerDownPending
	NodeRebootRequested
	NodeRebootIssued
	NodeInvalidReg // the node reported less than its configuration
	NodeDynamic
	NodeCloud          // State=CLOUD in slurm.conf
	NodePowerUpPending // POWER_UP: ResumeProgram is to run for it
	NodePowerDrain     // POWER_DOWN_ASAP has drained it: it is not any more once it is powered down
)

// Step ids with a meaning of their own (the numbers are Slurm's).
const (
	BatchStep  uint32 = 0xfffffffb
	ExternStep uint32 = 0xfffffffc
	// InteractiveStep is the one that salloc starts: as any other, but of this number.
	InteractiveStep uint32 = 0xfffffffa
	// CopyStep is the first number of those that bring files to nodes: they do not count among the steps of their job.
	CopyStep uint32 = 0xf0000000
)

// IsCopy tells steps that bring files to nodes from those that users have asked for.
func IsCopy(step uint32) bool { return step >= CopyStep && step < InteractiveStep }

// Requeue and similar three-way settings of JobSpec.
const (
	Unset uint32 = 0
	Yes   uint32 = 1
	No    uint32 = 2
)

// Open modes of JobSpec.open_mode.
const (
	OpenAppend   uint32 = 1
	OpenTruncate uint32 = 2
)

// Signal targets (scancel(1): steps only by default, --batch, --full).
const (
	SignalSteps uint32 = iota
	SignalBatch
	SignalAll
)

// Mail events of JobSpec.mail_type (sbatch(1), --mail-type).
const (
	MailBegin uint32 = 1 << iota
	MailEnd
	MailFail
	MailRequeue
	MailTime100
	MailTime90
	MailTime80
	MailTime50
	MailStageOut
	MailArrayTasks
	MailInvalidDepend
)

// Terminal reports whether a job in this base state has ended for good.
func (s JobState) Terminal() bool { return s >= JobState_JOB_COMPLETED }
