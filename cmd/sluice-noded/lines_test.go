package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLines: what noded-link writes is whole lines, bounded in number and in bytes, and what is left out is said.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			line  string
			bound int // bytes
		}{
			"many lines":      {"x\n", 2*linesAtOnce + 100},
			"long lines":      {strings.Repeat("x", 10_000) + "\n", bytesAtOnce + 200},
			"very long lines": {strings.Repeat("x", 1<<20) + "\n", bytesAtOnce + 200},
		} {
			var out bytes.Buffer
			l := newLines(func(line []byte) error {
				_, err := out.Write(line)
				return err
			})
			for range 20_000 {
				if n, err := fmt.Fprint(l, c.line); n != len(c.line) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.Len() > c.bound || out.Len() < c.bound/2 {
				t.Errorf("%s: %d bytes, want up to %d", what, out.Len(), c.bound)
			}
			out.Reset()
			time.Sleep(time.Minute) // of the bubble
			fmt.Fprint(l, "wor")
			fmt.Fprint(l, "ds\nmo")
			if got := out.String(); !strings.Contains(got, "were dropped") || !strings.HasSuffix(got, "words\n") {
				t.Errorf("%s: afterwards %q", what, got)
			}
		}
	})
}
