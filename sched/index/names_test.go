package index

import (
	"slices"
	"strings"
	"testing"
)

func TestCompareNames(t *testing.T) {
	names := strings.Fields("n10 n2 n1 n01 a9b2 a9b10 a10 n m")
	slices.SortFunc(names, compareNames)
	if got := strings.Join(names, " "); got != "a9b2 a9b10 a10 m n n01 n1 n2 n10" {
		t.Fatal(got)
	}
}
