package joboptions

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/opt"
)

// checkIgnored rejects values that Slurm rejects, for options without effect here.
func checkIgnored(option, value string) error {
	switch option {
	case "acctg-freq":
		for _, word := range strings.Split(value, ",") {
			kind, count, named := strings.Cut(word, "=")
			if !named {
				kind, count = "task", word
			}
			if !slices.Contains([]string{"task", "energy", "network", "filesystem"}, strings.ToLower(kind)) || !digits(count) {
				return &opt.ValueError{Lines: []string{"Invalid --acctg-freq specification: " + opt.Quoted(value)}, Exit: 255}
			}
		}
	case "cpu-freq":
		if value == "" || strings.IndexFunc(value, func(c rune) bool { return c != ':' && c != '-' }) < 0 {
			break
		}
		for _, word := range strings.FieldsFunc(value, func(c rune) bool { return c == '-' || c == ':' }) {
			if !digits(word) && !slices.Contains(frequencies, strings.ToLower(word)) {
				return &opt.ValueError{Lines: []string{`unrecognized --cpu-freq argument "` + opt.Quoted(word) + `"`,
					"Invalid --cpu-freq argument"}, Exit: 255}
			}
		}
	case "mem-bind":
		for _, word := range strings.Split(value, ",") {
			kind, _, _ := strings.Cut(word, ":")
			if !slices.Contains(bindings, strings.ToLower(kind)) && !digits(kind) && !strings.HasPrefix(kind, "0x") {
				return &opt.ValueError{Lines: []string{`unrecognized --mem-bind argument "` + opt.Quoted(word) + `"`}, Exit: 255}
			}
		}
	}
	return nil
}

// frequencies and governors of srun(1), --cpu-freq.
var frequencies = []string{"low", "medium", "high", "highm1", "conservative", "ondemand", "performance", "powersave", "schedutil",
	"userspace"}

// bindings are the types of srun(1), --mem-bind.
var bindings = []string{"help", "local", "map_mem", "mask_mem", "no", "none", "nosort", "prefer", "p", "quiet", "q", "rank", "sort",
	"verbose", "v"}

func digits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return c < '0' || c > '9' }) < 0
}
