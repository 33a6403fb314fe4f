package state

import "testing"

// FuzzParseCores: valid input has one written form, which parses to the same cores.
func FuzzParseCores(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,6", "6,0-3", "3-0", "-1", "1-", "65535", "65536", "0-65535", "1,1", "a", "1,,2",
		"99999999999999999999", "+1", "0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCores(text)
		if err != nil {
			return
		}
		again, err := ParseCores(c.String())
		if err != nil || again.String() != c.String() {
			t.Fatalf("%q is written %q, which is read as %q: %v", text, c, again, err)
		}
	})
}
