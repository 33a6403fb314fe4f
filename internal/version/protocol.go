package version

import (
	"fmt"
	"strconv"
	"strings"
)

// Protocol is the version of the protocol between the parts of a cluster, Oldest the lowest one that this release understands. A
// new field of a message changes neither: unknown fields are kept or ignored. Protocol is incremented by a release whose parts must
// be distinguished from those of the previous one; Oldest by a release that no longer understands an older one.
//
//	1  releases that send no number
//	2  all parts send their numbers
const (
	Protocol = 2
	Oldest   = 1
)

// Build describes one part of a cluster in a handshake.
type Build struct {
	Protocol, Oldest uint32
	Release          string // for display
}

// Ours is this program.
var Ours = Build{Protocol, Oldest, Sluice}

// Key is the key of a Build in the metadata of calls: ttrpc of commands, gRPC of hosts. ClockKey is that of the host's clock, in
// nanoseconds since 1970. AuthorityKey is, in the controller's answers to hosts, that of the authority that signs certificates
// (mtls.AuthorityID).
const (
	Key          = "sluice-build"
	ClockKey     = "sluice-clock"
	AuthorityKey = "sluice-authority"
)

// String formats a Build for metadata.
func (b Build) String() string { return fmt.Sprintf("%d %d %s", b.Protocol, b.Oldest, b.Release) }

// Parse reads the output of String and ignores additions of later releases. An invalid text means a release that predates protocol
// numbers.
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

// plain makes a peer's release safe for logs.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 32)]
}

// Meets returns nil if b, which is called me, and other can work together. The error says which side to upgrade; the other side
// needs no change.
func (b Build) Meets(me, they string, other Build) error {
	if a := b.ApartFrom(me, they, other); a != nil {
		return fmt.Errorf("%w: upgrade %s", a, a.Old)
	}
	return nil
}

// Apart is the error that two builds cannot work together, without a remedy.
type Apart struct {
	Old   string // name of the older one
	young string
	o, y  Build
}

// Error describes both builds.
func (a *Apart) Error() string {
	return fmt.Sprintf("%s (release %s, protocol %d) is too old for %s (release %s), which understands protocols %d to %d",
		a.Old, a.o.Release, a.o.Protocol, a.young, a.y.Release, a.y.Oldest, a.y.Protocol)
}

// ApartFrom is Meets for cases in which upgrading the older side is not always the remedy; nil if they can work together.
func (b Build) ApartFrom(me, they string, other Build) *Apart {
	switch {
	case other.Protocol < b.Oldest:
		return &Apart{they, me, other, b}
	case b.Protocol < other.Oldest:
		return &Apart{me, they, b, other}
	}
	return nil
}
