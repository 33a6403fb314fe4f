package tres

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMemoryAsRecorded holds what Slurm 22.05 printed for --mem=TEXT.
func TestMemoryAsRecorded(t *testing.T) {
	for in, want := range map[string]string{
		"1": "1M", "100": "100M", "100M": "100M", "1G": "1G", "1g": "1G", "1gb": "1G", "1GB": "1G", "1024K": "1M", "1K": "1M",
		"500K": "1M", "1025K": "2M", "2048K": "2M", "1536K": "2M", "1T": "1T", "1000": "1000M", "1024": "1G", "2048": "2G",
		"2000": "2000M", "1536": "1.50G", "3G": "3G", "3000": "3000M", "0": "0", "1KB": "1M", "1280": "1280M", "1025": "1025M",
		"10240": "10G", "1024000": "1000G", "1048576": "1T", "1572864": "1.50T", "1073741824": "1P", "1536000": "1500G",
		"512": "512M", "1000000": "1000000M", "5632": "5.50G", "2560": "2.50G", "1310720": "1280G", "0K": "0",
		"1P": "1P", "1024P": "1024P",
	} {
		mib, err := ParseMiB(in)
		if err != nil || FormatMiB(mib) != want {
			t.Errorf("%q is %s, %v, want %s", in, FormatMiB(mib), err, want)
		}
	}
	for _, in := range []string{"", "-1", "abc", "1X", "1B", "1GiB", "1.5G", "0.001T", "G", "1 G", " 1", "1025P",
		"99999999999999999999999", "1KK"} {
		if mib, err := ParseMiB(in); err == nil || !strings.Contains(err.Error(), "500M") {
			t.Errorf("ParseMiB(%q) = %d, %v, want an error that gives an example", in, mib, err)
		}
	}
}

func TestFormatMiBIn(t *testing.T) {
	for _, c := range []struct {
		mib  uint64
		unit byte
		want string
	}{{100, 'G', "0.10G"}, {2048, 'G', "2G"}, {1536, 'G', "1.50G"}, {1536, 'M', "1536M"}, {2, 'K', "2048K"}, {1, '?', "1M"}} {
		if got := FormatMiBIn(c.mib, c.unit); got != c.want {
			t.Errorf("FormatMiBIn(%d, %c) = %s, want %s", c.mib, c.unit, got, c.want)
		}
	}
}

func TestMemoryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mib := rapid.Uint64Range(0, MaxMiB).Draw(t, "mib")
		if back, err := parseTresMiB(FormatMiB(mib)); err != nil || back != mib {
			t.Fatalf("%s reads as %d, %v, want %d", FormatMiB(mib), back, err, mib)
		}
	})
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"cpu=1,mem=100M,node=1,billing=1,gres/gpu=2": "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2",
		"node=1,CPU=4,Mem=1536M":                     "cpu=4,mem=1.50G,node=1",
		"mem=1.50G":                                  "mem=1.50G",
		"gres/gpu=2,gres/gpu:a100=2,cpu=1":           "cpu=1,gres/gpu=2,gres/gpu:a100=2",
		"GRES/gpu=1K":                                "gres/gpu=1024",
		"license/matlab=3,fs/disk=0":                 "fs/disk=0,license/matlab=3",
	} {
		l, err := Parse(in)
		if err != nil || l.String() != want {
			t.Errorf("Parse(%q) = %s, %v, want %s", in, l, err, want)
		}
	}
	for in, want := range map[string]string{
		"cpu":           "has no '='",
		"cpu=":          "whole number",
		"cpu=-1":        "whole number",
		"foo=1":         "unknown resource",
		"gres/=1":       "unknown resource",
		"cpu=1,CPU=2":   "given twice",
		"cpu=1,":        "has no '='",
		"mem=1X":        "not a unit",
		"cpu=99999999P": "too large",
		"gres/a b=1":    "unknown resource",
	} {
		if l, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %s, %v, want %q", in, l, err, want)
		}
	}
}

func TestListGetWith(t *testing.T) {
	l, _ := Parse("cpu=4,mem=100M")
	m := l.With("gres/gpu", 2).With("node", 1).With("cpu", 0)
	if m.String() != "mem=100M,node=1,gres/gpu=2" || l.String() != "cpu=4,mem=100M" || m.Get("gres/gpu") != 2 || m.Get("cpu") != 0 {
		t.Errorf("With gave %s and left %s", m, l)
	}
}

func TestWeights(t *testing.T) {
	got, err := ParseWeights("CPU=1.0,Mem=0.25G,GRES/gpu=2.0,node=-1,energy=1K")
	want := []Weight{{"cpu", 1}, {"mem", 0.25 / 1024}, {"gres/gpu", 2}, {"node", -1}, {"energy", 1. / 1024}}
	if err != nil || !slices.EqualFunc(got, want, func(a, b Weight) bool { return a.Name == b.Name && math.Abs(a.Value-b.Value) < 1e-12 }) {
		t.Errorf("ParseWeights = %v, %v, want %v", got, err, want)
	}
	for _, in := range []string{"cpu", "cpu=x", "cpu=", "foo=1", "cpu=NaN", "cpu=1e400", "cpu=1KK"} {
		if got, err := ParseWeights(in); err == nil {
			t.Errorf("ParseWeights(%q) = %v, want an error", in, got)
		}
	}
}

func TestGres(t *testing.T) {
	for in, want := range map[string]string{
		"gpu": "gpu:1", "gpu:1": "gpu:1", "gpu:2": "gpu:2", "gpu:a100": "gpu:a100:1", "gpu:a100:2": "gpu:a100:2", "gpu:0": "gpu:0",
		"gpu:1K": "gpu:1024", "none": "", "NONE": "", "": "", "gpu:A100:1": "gpu:A100:1", "shard:4,mps:50": "shard:4,mps:50",
		"gpu:a100_3g.20gb:1": "gpu:a100_3g.20gb:1", "gpu:1g.10gb": "gpu:1g.10gb:1", "gpu:a100:1,gpu:h100:2": "gpu:a100:1,gpu:h100:2",
		"gres:gpu:a100:2": "gpu:a100:2", "gres/gpu:2": "gpu:2",
	} {
		list, err := ParseGres(in)
		if err != nil || FormatGres(list, "") != want {
			t.Errorf("ParseGres(%q) = %v, %v, want %s", in, list, err, want)
		}
	}
	for in, want := range map[string]string{
		"gpu:a100:1,gpu:1":         "with and without a type",
		"gpu,gpu":                  "given twice",
		"gpu:18446744073709551616": "too large",
		"gpu:x:y":                  `"y" is not a count`,
		"gpu:":                     "is empty",
		"gpu::1":                   "is empty",
		"gpu:1,":                   "is empty",
		"gpu:-1":                   "cannot be negative",
		"gpu=1":                    "a character",
		"gpu:a100=2":               "a character",
		"1":                        "name of the resource is missing",
		"gpu:a:1:1":                "too many",
		"gres":                     "too few",
		"gpu:a\x1bb":               "a character",
	} {
		if list, err := ParseGres(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseGres(%q) = %v, %v, want %q", in, list, err, want)
		}
	}
	if list, _ := ParseGres("gpu:a100:2"); FormatGres(list, "gres:") != "gres:gpu:a100:2" || list[0].TresName() != "gres/gpu:a100" {
		t.Errorf("printed as %s and %s", FormatGres(list, "gres:"), list[0].TresName())
	}
}

func TestNodeGres(t *testing.T) {
	list, err := ParseNodeGres("gpu:tesla:1,gpu:kepler:1,bandwidth:lustre:no_consume:4G")
	want := []Gres{{Name: "gpu", Type: "tesla", Count: 1}, {Name: "gpu", Type: "kepler", Count: 1}, {"bandwidth", "lustre", 4 << 30, true}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("ParseNodeGres = %v, %v", list, err)
	}
}

func TestGPUs(t *testing.T) {
	for in, want := range map[string]string{"1": "gpu:1", "a100:2": "gpu:a100:2", "a100": "gpu:a100:1",
		"a100:1,h100:2": "gpu:a100:1,gpu:h100:2", "0": "gpu:0", "1K": "gpu:1024"} {
		list, err := ParseGPUs(in)
		if err != nil || FormatGres(list, "") != want {
			t.Errorf("ParseGPUs(%q) = %v, %v, want %s", in, list, err, want)
		}
	}
	for _, in := range []string{"", "gpu:a100:1", "a100:1,1", "-1", "a100:", "1,2"} {
		if list, err := ParseGPUs(in); err == nil || !strings.Contains(err.Error(), "[type:]count") {
			t.Errorf("ParseGPUs(%q) = %v, %v, want an error with the form", in, list, err)
		}
	}
}

func FuzzMemory(f *testing.F) {
	for _, s := range []string{"1", "1G", "1025K", "1.50G", "1gb", "1024P", "x", "99999999999999999999P"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if mib, err := ParseMiB(s); err == nil && mib > MaxMiB {
			t.Fatalf("ParseMiB(%q) = %d", s, mib)
		}
		if mib, err := parseTresMiB(s); err == nil && mib > MaxMiB {
			t.Fatalf("parseTresMiB(%q) = %d", s, mib)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"cpu=1,mem=1.50G,node=1", "gres/gpu:a100=2", "CPU=1.0,Mem=0.25G", "a=b,c", "mem=1.9P"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ParseWeights(s)
		l, err := Parse(s)
		if err != nil {
			return
		}
		if back, err := Parse(l.String()); err != nil || !slices.Equal(back, l) {
			// Only sizes with more than a half lose digits in print.
			t.Fatalf("%q prints as %s, which reads as %s, %v", s, l, back, err)
		}
	})
}

func FuzzGres(f *testing.F) {
	for _, s := range []string{"gpu:a100:2,gpu:h100", "none", "gres/gpu:1", "bandwidth:lustre:no_consume:4G", "a100:1", "gpu:1K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ParseGPUs(s)
		for _, parse := range []func(string) ([]Gres, error){ParseGres, ParseNodeGres} {
			list, err := parse(s)
			if err != nil {
				continue
			}
			if back, err := parse(FormatGres(list, "")); err != nil || !slices.Equal(back, list) {
				t.Fatalf("%q prints as %s, which reads as %v, %v", s, FormatGres(list, ""), back, err)
			}
		}
	})
}
