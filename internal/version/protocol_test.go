package version

import (
	"strings"
	"testing"
)

// TestMeets: releases that understand each other work together, whichever is the newer; others say which of them has to be upgraded, and
// both say the same.
func TestMeets(t *testing.T) {
	for _, c := range []struct {
		mine, theirs Build
		old          string // who is too old; "": nobody
	}{
		{Ours, Ours, ""},
		{Ours, Parse(""), ""},
		{Build{3, 2, "0.3"}, Build{2, 1, "0.2"}, ""},
		{Build{2, 1, "0.2"}, Build{3, 2, "0.3"}, ""},
		{Build{3, 3, "0.3"}, Build{2, 1, "0.2"}, "node n1"},
		{Build{2, 1, "0.2"}, Build{3, 3, "0.3"}, "the controller"},
		{Build{9, 8, "1.0"}, Parse(""), "node n1"},
	} {
		err := c.mine.Meets("the controller", "node n1", c.theirs)
		back := c.theirs.Meets("node n1", "the controller", c.mine)
		if c.old == "" {
			if err != nil || back != nil {
				t.Errorf("%v and %v: %v, %v", c.mine, c.theirs, err, back)
			}
			continue
		}
		if err == nil || back == nil || err.Error() != back.Error() || !strings.HasSuffix(err.Error(), ": upgrade "+c.old) {
			t.Errorf("%v and %v: %v, %v", c.mine, c.theirs, err, back)
		}
	}
}

func TestParse(t *testing.T) {
	unnumbered := Parse("")
	for text, want := range map[string]Build{
		"2 1 0.1.0":          {2, 1, "0.1.0"},
		"7 5 1.2 and more":   {7, 5, "1.2"},
		"2 1":                {2, 1, ""},
		"1 2 0.1":            unnumbered, // understands nothing that it says itself
		"-1 1 0.1":           unnumbered,
		"99999999999999 1 x": unnumbered,
		"2 1 a\x1b[2Jb":      {2, 1, "a[2Jb"},
	} {
		if got := Parse(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	if got := Parse(Ours.String()); got != Ours {
		t.Errorf("%q is read as %+v", Ours.String(), got)
	}
}
