package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestFind: a goroutine that ends later than goleak waits for is none that was left.
func TestFind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	if goleak.Find(before) == nil {
		t.Error("a goroutine that has not ended is not found")
	}
	time.AfterFunc(2*time.Second, func() { close(end) })
	None(t, before)
	select {
	case <-end:
	default:
		t.Error("it was not waited for")
	}
}
