package ctld

import (
	"context"
	"sync"
	"testing"
)

// TestAccountingEndsLast: the database is open until the recorder of GPU hours has handed on its last minute.
func TestAccountingEndsLast(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	part := func(_ string, f func() error) {
		parts.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	var order []string // the second is written after the end of the first one's context
	flushed := false
	keepAccounts(ctx, part, func(ctx context.Context) {
		<-ctx.Done()
		order, flushed = append(order, "recorder"), true
	}, func(ctx context.Context) {
		<-ctx.Done()
		if !flushed {
			t.Error("accounting ends while the recorder has not handed on what it has")
		}
		order = append(order, "accounting")
	})
	cancel()
	parts.Wait()
	if len(order) != 2 {
		t.Errorf("%v", order)
	}
}
