package failpoint

import "testing"

// FuzzParse: whatever the variable holds, a point has a name or none, and fires from the first hit on at the earliest.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "a:1", "a:0", "a:-1", "a:b", ":", ":2", "a:1:2", "a:99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, after := parse(s); after < 1 {
			t.Fatalf("%q fires after %d hits", s, after)
		}
	})
}
