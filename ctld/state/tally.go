package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Tally counts jobs and tasks of arrays by their state.
type Tally map[pb.JobState]uint64

// Add counts a record: each of its tasks, where it stands for several.
func (t Tally) Add(j *pb.JobRecord) { t[j.State] += max(1, ArraySet(j).Count()) }

// Total returns the number of counted jobs and tasks, Left the number of them that have not ended.
func (t Tally) Total() (n uint64) {
	for _, k := range t {
		n += k
	}
	return n
}

func (t Tally) Left() (n uint64) {
	for s, k := range t {
		if !s.Terminal() {
			n += k
		}
	}
	return n
}

// String returns, for instance, "7 PENDING, 10 RUNNING".
func (t Tally) String() string {
	var words []string
	for _, s := range slices.Sorted(maps.Keys(t)) {
		words = append(words, fmt.Sprintf("%d %s", t[s], strings.TrimPrefix(s.String(), "JOB_")))
	}
	return strings.Join(words, ", ")
}
