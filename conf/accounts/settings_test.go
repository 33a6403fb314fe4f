package accounts

import (
	"slices"
	"strings"
	"testing"
)

func TestValues(t *testing.T) {
	for _, tt := range []struct {
		on         On
		word, show string // "" of show: refused
	}{
		{Assoc, "maxjobs=3", "3"}, {Assoc, "maxjobs=0", "0"}, {Assoc, "maxjobs=-1", "none"}, {Assoc, "maxjobs=-2", ""},
		{Assoc, "maxjobs=4294967293", ""}, {Assoc, "maxjobs=99999999999999999999", ""}, {Assoc, "maxjobs=1.5", ""}, {Assoc, "maxjobs=", ""},
		{Assoc, "maxwall=90", "01:30:00"}, {Assoc, "maxwall=1-2", "1-02:00:00"}, {Assoc, "maxwall=abc", ""}, {Assoc, "maxwall=-1", "none"},
		{Assoc, "fairshare=parent", "parent"}, {Assoc, "fairshare=7", "7"}, {Assoc, "fairshare=2147483647", "parent"},
		{Assoc, "fairshare=2147483648", ""},
		{QOS, "usagefactor=2.5", "2.500000"}, {QOS, "usagefactor=-2", ""}, {QOS, "usagefactor=NaN", ""},
		{QOS, "gracetime=60", "00:01:00"},
		{Assoc, "grptres=node=1,gres/gpu=2,mem=3G,cpu=0", "cpu=0,gres/gpu=2,mem=3G,node=1"}, {Assoc, "grptres=cpu=-1,node=1", "node=1"},
		{Assoc, "grptres=cpu=-1", "none"}, {Assoc, "grptres=cpu=-3", ""}, {Assoc, "grptres=cpu=1,cpu=2", ""}, {Assoc, "grptres=cpu", ""},
		{Assoc, "grptres=nosuch=1", ""}, {Assoc, "grptres=", "none"}, {Assoc, "grptres=cpu=99999999999999999999", ""},
		{Assoc, "grpcpus=3", "3"}, {Assoc, "grpmem=2G", "2048"}, {QOS, "maxjobs=2", "2"},
		{QOS, "maxtrespu=gres/gpu:a100=2", "gres/gpu:a100=2"},
	} {
		name, value, _ := strings.Cut(tt.word, "=")
		s := Find(tt.on, name)
		if s == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		values, err := s.Parse(value)
		got := ""
		if err == nil {
			if got = s.Show(values); got == "" {
				got = "none"
			}
		}
		if got != tt.show {
			t.Errorf("%s: %q (%v), want %q", tt.word, got, err, tt.show)
		}
	}
}

// TestNamesAreUnambiguous: no name means two settings of one kind of record, and every part belongs to a vector.
func TestNamesAreUnambiguous(t *testing.T) {
	for _, on := range []On{Account, User, QOS} {
		var seen []string
		for _, s := range Table {
			if s.On&on == 0 {
				continue
			}
			for _, name := range s.Names() {
				if lower := strings.ToLower(name); slices.Contains(seen, lower) {
					t.Errorf("%s twice", name)
				} else {
					seen = append(seen, lower)
				}
			}
			if whole := Find(on, s.Name); s.Part != "" && (whole == nil || whole.Kind != Vector || whole.Part != "") {
				t.Errorf("%s of %s: no vector", s.Part, s.Name)
			}
		}
	}
	for _, name := range inEffect {
		if Find(Assoc|QOS, name) == nil {
			t.Errorf("inEffect: no setting %s", name)
		}
	}
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"lab", "vision-2", "a.b_c", "müller", "n@x"} {
		if why := BadName(name); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	for _, name := range []string{"", "a b", "a,b", "a/b", "a=b", "a|b", "a\x00b", "a\x1bb", "-a",
		"+a", "a\xffb", strings.Repeat("x", 201)} {
		if BadName(name) == "" {
			t.Errorf("%q is accepted", name)
		}
	}
}

// FuzzParse: whatever is typed, what was read is shown so that it reads the same.
func FuzzParse(f *testing.F) {
	f.Add("grptres", "cpu=1,mem=-1")
	f.Add("maxwall", "1-2:3")
	f.Fuzz(func(t *testing.T, name, value string) {
		s := Find(Assoc, name)
		if s == nil || !s.Numeric() {
			return
		}
		values, err := s.Parse(value)
		if err != nil {
			return
		}
		for _, v := range values {
			if s.Part == "" {
				if err := s.Check(v); err != nil {
					t.Fatalf("%s=%q: %v %v", name, value, v, err)
				}
			}
		}
		text := s.Show(values)
		if again, err := s.Parse(text); text != "" && (err != nil || s.Show(again) != text) {
			t.Errorf("%s=%q is shown as %q, which is %v %v", name, value, text, again, err)
		}
	})
}

// TestIdle: of flags those are named that decide nothing yet.
func TestIdle(t *testing.T) {
	for _, tt := range []struct {
		name, words, want string
	}{
		{"Flags", "DenyOnLimit UsageFactorSafe NoDecay", ""}, {"Flags", "DenyOnLimit NoReserve", "NoReserve"}, {"Flags", "", ""},
		{"UsageFactor", "", ""}, {"LimitFactor", "", "LimitFactor"},
	} {
		if got := strings.Join(Find(QOS, tt.name).Idle(strings.Fields(tt.words)), " "); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.name, tt.words, got, tt.want)
		}
	}
}
