package loop

import (
	"context"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
)

// BenchmarkSubmissions measures a submission when many arrive at once, without a disk.
func BenchmarkSubmissions(b *testing.B) {
	l := newLoop(journal.NewMemory())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.Do(ctx, submission("")); err != nil {
				b.Error(err)
			}
		}
	})
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
