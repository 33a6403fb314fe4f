package version

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// GenerationKey is the key of a Generation in the metadata of calls between hosts and controller, in both directions.
const GenerationKey = "sluice-generation"

// Generation identifies the current one of several states of a cluster: restoring a backup starts a new one, with a greater number.
// Hosts reject a controller whose state has a lower number than they have seen. The zero value means unknown.
type Generation struct {
	Cluster string // the cluster's id
	Number  uint64 // 1, or the time of the restore in seconds since 1970
}

// String formats a Generation for metadata.
func (g Generation) String() string { return fmt.Sprintf("%s %d", g.Cluster, g.Number) }

// ParseGeneration reads the output of String. Any other text gives the zero value.
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

// Outdated returns an error if a controller with a state of generation g is obsolete for a host that has followed seen. The error
// names both and the remedy; both sides report the same.
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
