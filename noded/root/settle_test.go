package root

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

// TestSettleNamesNoOrders: a machine that was busy for as long as there is patience is no sign of something that does not answer.
func TestSettleNamesNoOrders(t *testing.T) {
	var said bytes.Buffer
	s := &session{r: &Root{log: slog.New(slog.NewTextHandler(&said, nil))}, calls: map[uint64]context.CancelCauseFunc{}}
	last := make(chan struct{})
	s.wg.Go(func() { <-last }) // the last step of a request that has been carried out
	settled := make(chan struct{})
	go func() { s.settle(); close(settled) }()
	close(last)
	if <-settled; said.Len() > 0 {
		t.Errorf("it says %s", said.String())
	}
	s.calls[1] = func(error) {}
	hung := make(chan struct{})
	s.wg.Go(func() { <-hung })
	s.settle()
	close(hung)
	s.wg.Wait()
	if !strings.Contains(said.String(), "requests=1\n") {
		t.Errorf("of a request that hangs it says %q", said.String())
	}
}
