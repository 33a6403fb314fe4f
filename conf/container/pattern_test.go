package container

import "testing"

func TestExpand(t *testing.T) {
	v := &Values{Command: []string{"sh", "-c", "echo 'a' $b"}, Bundle: "/b", EnvFile: "/e", Job: 7, Spool: "/m", Node: "n1", PID: 12,
		Root: "/r", Step: 0xfffffffb, Task: 3, User: "ann", UID: 1000}
	for pattern, want := range map[string]string{
		"crun run --bundle %b %n.%u.%j.%s.%t": "crun run --bundle /b n1.ann.7.4294967291.3",
		"%r -- %@":                            `/r -- 'sh' '-c' 'echo '\''a'\'' $b'`,
		"%e %m %p %U 100%%":                   "/e /m 12 1000 100%",
		"":                                    "",
	} {
		if got, err := v.Expand(pattern); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
		}
	}
	for pattern, also := range map[string]string{"%x": InEnd, "a%": InEnd, "%p": InRun, "/x/%t": InPath, "%@": InPath} {
		if err := CheckPattern(pattern, also); err == nil {
			t.Errorf("%s is taken with %q", pattern, also)
		}
	}
	for pattern, also := range map[string]string{"%p%%": InEnd, "%b%t%@": InRun, "/x/%U/%j.%s": InPath} {
		if err := CheckPattern(pattern, also); err != nil {
			t.Errorf("%s is refused with %q: %v", pattern, also, err)
		}
	}
}
