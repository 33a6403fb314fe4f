package pretend

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// script is the simulated effect of a batch script.
type script struct {
	takes  time.Duration
	status uint32 // exit status
}

// maxScript bounds the part of a script that is read.
const maxScript = 64 << 10

// read finds the commands sleep, exit and false in a script, one command on a line or separated by semicolons; "&&" is not
// supported. All other commands take no time and succeed. Neither does a sleep take time if its number cannot be read, for
// instance because it is a variable.
func read(text []byte) (s script) {
	all := string(text[:min(len(text), maxScript)])
	for line := range strings.Lines(all) {
		for command := range strings.SplitSeq(line, ";") {
			words := strings.Fields(command)
			if len(words) == 0 || strings.HasPrefix(words[0], "#") {
				break
			}
			if words[0] == "exec" && len(words) > 1 {
				words = words[1:]
			}
			s.status = 0
			switch words[0] {
			case "sleep":
				for _, w := range words[1:] {
					s.takes = min(s.takes+lasts(w), forever)
				}
			case "false":
				s.status = 1
			case "exit":
				if len(words) > 1 {
					n, _ := strconv.ParseUint(words[1], 10, 8)
					s.status = uint32(n)
				}
				return s
			}
		}
	}
	return s
}

// lasts parses an argument of sleep(1).
func lasts(word string) time.Duration {
	if word == "infinity" || word == "inf" {
		return forever
	}
	unit := time.Second
	switch {
	case strings.HasSuffix(word, "s"):
	case strings.HasSuffix(word, "m"):
		unit = time.Minute
	case strings.HasSuffix(word, "h"):
		unit = time.Hour
	case strings.HasSuffix(word, "d"):
		unit = 24 * time.Hour
	}
	n, err := strconv.ParseFloat(strings.TrimRight(word, "smhd"), 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(forever)))
}
