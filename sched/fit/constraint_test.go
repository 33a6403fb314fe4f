package fit

import (
	"fmt"
	"strings"
	"testing"
)

func show(c *Constraint) string {
	var alts []string
	for _, a := range c.Alternatives {
		s := a.Each.String()
		for _, n := range a.Counts {
			s += fmt.Sprintf(" {%s}>=%d", n.Of, n.N)
		}
		alts = append(alts, s)
	}
	return strings.Join(alts, " ; ")
}

func TestParseConstraint(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"intel", "intel"},
		{"intel&gpu", "intel&gpu"},
		{"intel,gpu", "intel&gpu"},
		{"intel|amd", "intel|amd"},
		{"a|b&c", "a|b&c"},
		{"(cpu)", "cpu"},
		{"[(cpu)]", "cpu"},
		{"([cpu])", "cpu"},
		{"(cpu)&(intel)", "cpu&intel"},
		{"[cpu]&intel", "cpu&intel"},
		{"(a|b)&c", "(a|b)&c"},
		{"[rack1|rack2|rack3]", "rack1 ; rack2 ; rack3"},
		{"x&[a|b]", "x&a ; x&b"},
		{"[a&b]", "a&b"},
		{"graphics*4", " {graphics}>=4"},
		{"x&graphics*4", "x {graphics}>=4"},
		{"[rack1*2&rack2*4]", " {rack1}>=2 {rack2}>=4"},
		{"[(rack1|rack2)*1&(rack3)*2]", " {rack1|rack2}>=1 {rack3}>=2"},
		{"[a|b]&[c|d]", "a&c ; a&d ; b&c ; b&d"},
	} {
		got, err := ParseConstraint(c.in)
		if err != nil || show(got) != c.want {
			t.Errorf("%q: %v, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestParseConstraintRefuses(t *testing.T) {
	for _, in := range []string{"[a", "a]", "(a|b", "a)", "a&", "|a", "a**2", "a*0", "a*", "a*99999999999", "(a*2|b)", "[a|b]*2", "a b",
		"a\x00", "[[cpu]]", "((cpu))", "(a&(b|c))", "[a&[b|c]]", "()", "[]", "cpu[", "]cpu[", "cpu(intel)", "[cpu&(intel]", "[cpu][intel]",
		"a||b", "a&&b", strings.Repeat("(", 200) + "a", strings.Repeat("a", 5000)} {
		if c, err := ParseConstraint(in); err == nil {
			t.Errorf("%q accepted as %q", in, show(c))
		}
	}
}

func TestMatch(t *testing.T) {
	c, err := ParseConstraint("(a|b)&c")
	if err != nil {
		t.Fatal(err)
	}
	for features, want := range map[string]bool{"a c": true, "b c d": true, "a b": false, "c": false, "": false} {
		if got := c.Alternatives[0].Each.Match(strings.Fields(features)); got != want {
			t.Errorf("%q: %v", features, got)
		}
	}
}

func FuzzParseConstraint(f *testing.F) {
	for _, s := range []string{"a", "a&b|c", "[a|b]", "[a*2&b*1]", "((a))", "[[a]]", "a*", "(a*2)*3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseConstraint(s)
		if err == nil && len(c.Alternatives) == 0 {
			t.Fatalf("%q has no alternative", s)
		}
		if err == nil {
			for _, a := range c.Alternatives {
				a.Each.Match([]string{"a"})
				again, err := ParseConstraint(a.Each.String())
				if err != nil ||
					show(again) != show(&Constraint{Alternatives: []Alternative{{Each: a.Each}}}) && len(a.Counts) == 0 &&
						!strings.ContainsAny(s, "([,") {
					t.Fatalf("%q reads back as %v, %v", a.Each, again, err)
				}
			}
		}
	})
}
