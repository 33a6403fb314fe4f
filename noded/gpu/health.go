package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Words of faults that drivers report.
const (
	RemapFailed  = "remapping of memory rows failed: the GPU has to be replaced"
	RemapPending = "remapping of memory rows waits for a reset of the GPU"
	lostWords    = "fallen off the bus"
)

// defaultRecover is how long a GPU must have been healthy before it is used again.
const defaultRecover = 5 * time.Minute

// ApplicationXIDs are errors that a program causes, not the GPU (NVIDIA, "XID Errors": 13 graphics engine exception, 31 page
// fault, 43 and 45 channel reset after a fault of the program or its end, 68 video decoder exception, 109 context switch timeout).
var ApplicationXIDs = []uint32{13, 31, 43, 45, 68, 109}

// xidWords say what the commonest errors of hardware are.
var xidWords = map[uint64]string{
	32: "corrupted push buffer", 38: "driver firmware error", 46: "GPU stopped processing", 48: "double bit ECC error",
	54: "auxiliary power is not connected",
	56: "display engine error", 61: "internal microcontroller breakpoint", 62: "internal microcontroller halt",
	63: "row remapping recorded", 64: "row remapping failed",
	69: "graphics engine class error", 74: "NVLink error", 79: "the GPU has fallen off the bus", 92: "high single bit ECC error rate",
	94: "contained ECC error",
	95: "uncontained ECC error", 110: "security fault", 119: "GSP firmware does not answer", 120: "GSP firmware error",
	121: "C2C link error", 140: "unrecovered ECC error",
	154: "the GPU has to be reset",
}

func xidText(xid uint64) string {
	if w := xidWords[xid]; w != "" {
		return fmt.Sprintf("XID %d (%s)", xid, w)
	}
	return fmt.Sprintf("XID %d", xid)
}

// said: the controller's policy always has a time between samples; one without is none, and defaults count.
func said(p *pb.GpuPolicy) bool { return p.GetSampleS() > 0 }

// ignoresXID says whether an error is left to the job that caused it.
func ignoresXID(p *pb.GpuPolicy, xid uint64) bool {
	list := p.GetIgnoreXids()
	if len(list) == 0 && !said(p) {
		list = ApplicationXIDs
	}
	return slices.ContainsFunc(list, func(x uint32) bool { return uint64(x) == xid })
}

func recoverAfter(p *pb.GpuPolicy) time.Duration {
	if p.GetRecoverS() == 0 && !said(p) {
		return defaultRecover
	}
	return time.Duration(p.GetRecoverS()) * time.Second
}

// Observation is what one look at a GPU, or one event, has shown.
type Observation struct {
	Lost   bool
	XID    uint64 // that is not ignored; 0 = none
	Health Health
	Other  string // a fault in other words
}

// Condition is a GPU's state of health: a pure state machine, moved by See. The zero value has seen nothing.
//
// Anything bad is a fault at once. A fault ends when nothing bad has been seen for as long as the policy says, so that a GPU
// which fails repeatedly leaves the pool once, not each time. Its words are those of the first fault, with others behind.
type Condition struct {
	Fault   string    `json:"fault,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	LastBad time.Time `json:"last_bad,omitzero"`
	// ECC is how many errors that could not be corrected were counted when last looked.
	ECC int64 `json:"ecc,omitempty"`
}

// See takes in an observation. Times must not go backwards.
func (c Condition) See(o Observation, now time.Time, recover time.Duration) Condition {
	var bad []string
	if o.Lost {
		bad = append(bad, lostWords)
	}
	if o.XID != 0 {
		bad = append(bad, xidText(o.XID))
	}
	if o.Health.Broken != "" {
		bad = append(bad, o.Health.Broken)
	}
	if n := o.Health.Uncorrectable; n > c.ECC {
		// Of a GPU that is seen for the first time it is not known when they were.
		bad = append(bad, fmt.Sprintf("%d uncorrectable ECC %s", n, plural(n, "error")))
	}
	if o.Other != "" {
		bad = append(bad, o.Other)
	}
	if n := o.Health.Uncorrectable; n >= 0 && !o.Lost && o.XID == 0 {
		c.ECC = n // less than before when the driver was loaded anew
	}
	switch {
	case len(bad) > 0:
		if c.Fault == "" {
			c.Since = now
		}
		c.Fault, c.LastBad = addWords(c.Fault, bad), now
	case c.Fault != "" && now.Sub(c.LastBad) >= recover:
		c.Fault, c.Since, c.LastBad = "", time.Time{}, time.Time{}
	}
	return c
}

func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// maxFaultWords bounds how many different faults of one GPU are told.
const maxFaultWords = 4

// addWords puts new faults behind those that are known.
func addWords(known string, more []string) string {
	words := strings.Split(known, "; ")
	for _, w := range more {
		// A count that has grown replaces the old one.
		if at := slices.IndexFunc(words, func(k string) bool { return tail(k) == tail(w) && k != "" }); at >= 0 {
			words[at] = w
		} else if len(words) < maxFaultWords {
			words = append(words, w)
		}
	}
	return strings.TrimPrefix(strings.Join(words, "; "), "; ")
}

// tail is a fault without the number that it may begin with.
func tail(w string) string {
	return cmp.Or(strings.TrimSuffix(strings.TrimLeft(w, "0123456789"), "s"), w)
}
