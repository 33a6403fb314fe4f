package stepd

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestOwnMemory: what is read repeatedly from a file that stays open is what /proc says at that time.
func TestOwnMemory(t *testing.T) {
	m := newOwnMemory()
	defer m.close()
	status := func() uint64 {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip(err)
		}
		_, b, _ = bytes.Cut(b, []byte("\nVmHWM:"))
		n, err := strconv.ParseUint(string(bytes.Fields(b)[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const more = 64 << 20
	before := m.peak()
	if now := status(); before == 0 || before > now {
		t.Errorf("the peak was %d KiB, and is %d later", before, now)
	}
	b := make([]byte, more)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	had := status()
	if after := m.peak(); after < had {
		t.Errorf("%d KiB before and %d after having %d more; /proc says %d", before, after, more>>10, had)
	}
	runtime.KeepAlive(b)
}
