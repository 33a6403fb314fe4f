package inherit

import (
	"slices"
	"testing"
)

// TestNewThreads: a thread that another one makes before that one is changed is found, too; and one that ends is no trouble.
func TestNewThreads(t *testing.T) {
	here, made := []int{1, 2, 3}, map[int]int{3: 4, 4: 5}
	var changed []int
	err := forThreads(func() ([]int, error) { return slices.Clone(here), nil }, func(tid int) error {
		if tid == 2 {
			here = slices.DeleteFunc(here, func(t int) bool { return t == 2 })
		}
		if child := made[tid]; child != 0 {
			here = append(here, child)
		}
		changed = append(changed, tid)
		return nil
	})
	if want := []int{1, 2, 3, 4, 5}; err != nil || !slices.Equal(changed, want) {
		t.Errorf("%v, %v, want %v", changed, err, want)
	}
}

// TestThreads: those of this process are more than one, as Go has some for itself.
func TestThreads(t *testing.T) {
	if tids, err := threads(); err != nil || len(tids) < 2 {
		t.Errorf("%v, %v", tids, err)
	}
}
