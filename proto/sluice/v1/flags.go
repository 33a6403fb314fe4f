package pb

// Unlimited stands for "no limit" in every uint32 limit (Slurm's INFINITE).
const Unlimited uint32 = 0xffffffff

// GresUnread is the fault of all devices of a node that has never had a controller, until it learns of gres.conf: they are not
// allocated, but nothing is wrong with them.
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
	NodePowerUpPending // POWER_UP: ResumeProgram will run for it
	NodePowerDrain     // POWER_DOWN_ASAP has drained it, until it is powered down
)

// Special step ids (the numbers are Slurm's).
const (
	BatchStep  uint32 = 0xfffffffb
	ExternStep uint32 = 0xfffffffc
	// InteractiveStep is the step that salloc starts; only its number is special.
	InteractiveStep uint32 = 0xfffffffa
	// CopyStep is the first number of steps that copy files to nodes. They do not count as steps of their job.
	CopyStep uint32 = 0xf0000000
)

// IsCopy distinguishes steps that copy files to nodes from steps requested by users.
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
