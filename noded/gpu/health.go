package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Texts of faults that drivers report.
const (
	RemapFailed  = "remapping of memory rows failed: the GPU has to be replaced"
	RemapPending = "remapping of memory rows waits for a reset of the GPU"
	lostWords    = "fallen off the bus"
)

// defaultRecover is how long a GPU must be healthy before it is used again.
const defaultRecover = 5 * time.Minute

// ApplicationXIDs are errors caused by a program, not the GPU (NVIDIA, "XID Errors": 13 graphics engine exception, 31 page fault,
// 43 and 45 channel reset after a fault of the program or its end, 68 video decoder exception, 109 context switch timeout).
var ApplicationXIDs = []uint32{13, 31, 43, 45, 68, 109}

// xidWords describe the most common hardware errors.
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

// said reports whether p is a policy: one from the controller always has a time between samples. Without it the defaults apply.
func said(p *pb.GpuPolicy) bool { return p.GetSampleS() > 0 }

// ignoresXID reports whether an error is left to the job that caused it.
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

// Observation is the result of one look at a GPU, or one event.
type Observation struct {
	Lost   bool
	XID    uint64 // not ignored; 0 = none
	Health Health
	Other  string // description of another fault
}

// Condition is a GPU's state of health: a pure state machine, advanced by See. The zero value has seen nothing.
//
// Anything bad is a fault at once. A fault ends when nothing bad was seen for the policy's time, so that a GPU that fails
// repeatedly leaves the pool once, not each time. Its text is that of the first fault, followed by others.
type Condition struct {
	Fault   string    `json:"fault,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	LastBad time.Time `json:"last_bad,omitzero"`
	// ECC is the last count of uncorrectable errors.
	ECC int64 `json:"ecc,omitempty"`
}

// See returns the condition after an observation. Times must not go backwards.
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
		// The age of errors is unknown when a GPU is seen for the first time.
		bad = append(bad, fmt.Sprintf("%d uncorrectable ECC %s", n, plural(n, "error")))
	}
	if o.Other != "" {
		bad = append(bad, o.Other)
	}
	if n := o.Health.Uncorrectable; n >= 0 && !o.Lost && o.XID == 0 {
		c.ECC = n // less than before if the driver was reloaded
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

// maxFaultWords bounds the number of different faults shown for one GPU.
const maxFaultWords = 4

// addWords appends new faults to the known ones.
func addWords(known string, more []string) string {
	words := strings.Split(known, "; ")
	for _, w := range more {
		// A higher count replaces the old one.
		if at := slices.IndexFunc(words, func(k string) bool { return tail(k) == tail(w) && k != "" }); at >= 0 {
			words[at] = w
		} else if len(words) < maxFaultWords {
			words = append(words, w)
		}
	}
	return strings.TrimPrefix(strings.Join(words, "; "), "; ")
}

// tail returns a fault without its leading number.
func tail(w string) string {
	return cmp.Or(strings.TrimSuffix(strings.TrimLeft(w, "0123456789"), "s"), w)
}
