package opt

// Values of the specification's fields, as the messages define them (a test holds them against the messages' own). They are
// repeated here because a process that submits a job must not link the messages: see package submitwire.
const (
	unlimited uint32 = 0xffffffff

	unset uint32 = 0
	yes   uint32 = 1
	no    uint32 = 2

	openAppend   uint32 = 1
	openTruncate uint32 = 2
)

// Mail events, as bits.
const (
	mailBegin uint32 = 1 << iota
	mailEnd
	mailFail
	mailRequeue
	mailTime100
	mailTime90
	mailTime80
	mailTime50
	mailStageOut
	mailArrayTasks
	mailInvalidDepend
)

// Slurm's phrases for what the controller would refuse as well.
const (
	phraseTimeLimit  = "Requested time limit is invalid (missing or exceeds some limit)"
	phraseArray      = "Invalid job array specification"
	phraseGres       = "Invalid generic resource (gres) specification"
	phraseDependency = "Job dependency problem"
)
