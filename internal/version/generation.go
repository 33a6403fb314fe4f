package version

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// GenerationKey names a Generation in the metadata of calls between hosts and controller, both ways.
const GenerationKey = "sluice-generation"

// Generation tells which of several states of a cluster is in force: a restore of a backup begins one, with a greater number. Hosts
// follow no controller whose state is of a lower one than they have seen. The zero value says nothing.
type Generation struct {
	Cluster string // its id
	Number  uint64 // 1, or the time of the restore in seconds since 1970
}

// String is a Generation as metadata has it.
func (g Generation) String() string { return fmt.Sprintf("%s %d", g.Cluster, g.Number) }

// ParseGeneration reads what String writes. Other text says nothing.
func ParseGeneration(text string) Generation {
	f := strings.Fields(text)
	if len(f) < 2 {
		return Generation{}
	}
	n, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil || len(f[0]) > 64 {
		return Generation{}
	}
	return Generation{plain(f[0]), n}
}

// Outdated is nil unless a controller with a state of generation g is an old one for a host that has followed seen. The error names both
// and what helps; both sides say the same.
func (g Generation) Outdated(host string, seen Generation) error {
	if seen.Number <= g.Number || seen.Cluster != g.Cluster {
		return nil
	}
	return fmt.Errorf("the state of this controller is of generation %s, and %s has followed a controller of generation %s: a backup was "+
		"restored since, on another host or from another directory; stop the old controller (systemctl disable --now sluice-ctld), or, "+
		"if it is to stay, run sluice-ctld restore on it", g.words(), host, seen.words())
}

func (g Generation) words() string {
	if g.Number <= 1 {
		return fmt.Sprintf("%d (never restored)", g.Number)
	}
	return fmt.Sprintf("%d (restored %s)", g.Number, time.Unix(int64(g.Number), 0).UTC().Format("2006-01-02 15:04:05 MST"))
}
