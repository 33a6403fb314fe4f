// Package output is a buffer for tests that can be read while it is written.
package output

import (
	"strings"
	"sync"
)

// Buffer keeps the data written to it. The zero value is empty and ready; it must not be copied.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the data written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
