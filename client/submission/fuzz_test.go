package submission

import (
	"strings"
	"testing"
)

// FuzzExport: --export cuts at commas and loses nothing: the parts together are the value.
func FuzzExport(f *testing.F) {
	for _, s := range []string{"", "ALL", "NONE", "nil", "ALL,A=1", "A=1,ALL,B", `A="x,y",B`, "A='", ",,", "A=1,,B=\x00", "ALL,ALL"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if got := strings.Join(splitExport(value), ","); got != value {
			t.Fatalf("%q is cut into parts that make %q", value, got)
		}
		x := ParseExport(value)
		if x.all == x.Login {
			t.Fatalf("%q: all %t, login %t", value, x.all, x.Login)
		}
		for _, name := range append(x.before, x.names...) {
			if name == "" || strings.EqualFold(name, "ALL") || strings.EqualFold(name, "NONE") {
				t.Fatalf("%q names %q", value, name)
			}
		}
	})
}
