package version

import (
	"fmt"
	"strconv"
	"strings"
)

// Protocol is the number of what the parts of a cluster say to each other, Oldest the lowest one that this release understands. A message
// that gains a field changes neither: what is not known is kept or left out. Protocol goes up by one with a release whose parts must be
// told apart from the previous one's, Oldest when what an older release says is understood no more.
//
//	1  releases that give no number
//	2  all parts say their numbers
const (
	Protocol = 2
	Oldest   = 1
)

// Build is what one part of a cluster says of itself in a handshake.
type Build struct {
	Protocol, Oldest uint32
	Release          string // for people
}

// Ours is this program.
var Ours = Build{Protocol, Oldest, Sluice}

// Key names a Build in the metadata of calls: ttrpc of commands, gRPC of hosts. ClockKey names the host's clock beside it, in nanoseconds
// since 1970. AuthorityKey names, in the controller's answers to hosts, the authority that signs certificates (mtls.AuthorityID).
const (
	Key          = "sluice-build"
	ClockKey     = "sluice-clock"
	AuthorityKey = "sluice-authority"
)

// String is a Build as metadata has it.
func (b Build) String() string { return fmt.Sprintf("%d %d %s", b.Protocol, b.Oldest, b.Release) }

// Parse reads what String writes, and what later releases may add behind it. Text that says nothing is a release that predates numbers.
func Parse(text string) Build {
	b := Build{Protocol: 1, Oldest: 1, Release: "from before protocol numbers"}
	f := strings.Fields(text)
	if len(f) < 2 {
		return b
	}
	protocol, err1 := strconv.ParseUint(f[0], 10, 32)
	oldest, err2 := strconv.ParseUint(f[1], 10, 32)
	if err1 != nil || err2 != nil || oldest > protocol {
		return b
	}
	b = Build{Protocol: uint32(protocol), Oldest: uint32(oldest)}
	if len(f) > 2 {
		b.Release = plain(f[2])
	}
	return b
}

// plain is what a stranger calls a release, fit for logs.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 32)]
}

// Meets is nil when b, which me is called, and other can work together. The error says who is to be upgraded; nothing is the matter with
// the other side.
func (b Build) Meets(me, they string, other Build) error {
	if a := b.ApartFrom(me, they, other); a != nil {
		return fmt.Errorf("%w: upgrade %s", a, a.Old)
	}
	return nil
}

// Apart says that two builds cannot work together, but not what helps.
type Apart struct {
	Old   string // what the older one is called
	young string
	o, y  Build
}

// Error names both.
func (a *Apart) Error() string {
	return fmt.Sprintf("%s (release %s, protocol %d) is too old for %s (release %s), which understands protocols %d to %d",
		a.Old, a.o.Release, a.o.Protocol, a.young, a.y.Release, a.y.Oldest, a.y.Protocol)
}

// ApartFrom is Meets where upgrading the older one is not always what helps; nil when they can work together.
func (b Build) ApartFrom(me, they string, other Build) *Apart {
	switch {
	case other.Protocol < b.Oldest:
		return &Apart{they, me, other, b}
	case b.Protocol < other.Oldest:
		return &Apart{me, they, b, other}
	}
	return nil
}
