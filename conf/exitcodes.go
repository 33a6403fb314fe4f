package conf

import (
	"fmt"
	"strconv"
	"strings"
)

// ExitCodes reads the value of RequeueExit and RequeueExitHold (slurm.conf(5)): exit codes and ranges, as in "1-9,18".
func ExitCodes(v string) ([]uint8, error) {
	var codes []uint8
	for _, word := range words(v) {
		first, last, ranged := strings.Cut(word, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 8)
		to, err2 := strconv.ParseUint(last, 10, 8)
		if err1 != nil || err2 != nil || from > to {
			return nil, fmt.Errorf("%.40q is neither an exit code from 0 to 255 nor a range of them (1-9,18)", word)
		}
		for code := from; code <= to; code++ {
			codes = append(codes, uint8(code))
		}
	}
	return codes, nil
}

func exitCodes(field func(*Config) *string) setter {
	return func(c *Config, v string) error {
		_, err := ExitCodes(v)
		if err == nil {
			*field(c) = v
		}
		return err
	}
}

// DefaultJobCompLoc is where jobcomp/filetxt writes by default.
const DefaultJobCompLoc = "/var/log/slurm_jobcomp.log"
