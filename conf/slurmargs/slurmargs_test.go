package slurmargs

import (
	"strings"
	"testing"
)

func TestLevel(t *testing.T) {
	for v, want := range map[int]string{-1: "", 0: "", 1: "verbose", 3: "debug2", 99: "debug5"} { // the parser's count without any is -1
		if got := Level(v); got != want {
			t.Errorf("%d: %s, want %s", v, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	o := Options{Flags: "DcisRrvhV", Values: "fLn", Long: []string{"conf", "dynamic", "verbose"}, Bare: []string{"dynamic", "verbose"}}
	for in, want := range map[string]string{
		"-Dvvv":                      "-D -v -v -v",
		"-D -f /etc/s.conf -vv":      "-D -f /etc/s.conf -v -v",
		"-Df/etc/s.conf":             "-D -f=/etc/s.conf",
		"-Df /etc/s.conf -n-5 -n -5": "-D -f /etc/s.conf -n=-5 -n -5",
		"-f=/x -L/l":                 "-f=/x -L=/l",
		"-conf /x --log=/y -dynamic": "-conf /x --log=/y -dynamic",
		"-f /x issue --node n1 -Dv":  "-f /x issue --node n1 -Dv",
		"issue -node n1":             "issue -node n1",
		"-Dv restore -from /b":       "-D -v restore -from /b",
		"-dynamic pretend -nodes n1": "-dynamic pretend -nodes n1",
		"--verbose issue -vD":        "--verbose issue -vD",
		"--v issue -vD":              "--v issue -vD",
		"--socket=/s issue -vD":      "--socket=/s issue -vD",
		"-f/x issue -vD":             "-f=/x issue -vD",
		"--socket /s issue -vD":      "--socket /s issue -vD",
		"-metrics :1 -Dv x -Dv":      "-metrics :1 -D -v x -Dv",
		"--socket /s -n-5 -Dv":       "--socket /s -n=-5 -D -v",
		"-x -Dx":                     "-x -Dx",
		"-V":                         "-V",
		"-v -- -Dv":                  "-v -- -Dv",
		"--join - --join-only -v":    "--join - --join-only -v",
	} {
		if got := strings.Join(o.Split(strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
