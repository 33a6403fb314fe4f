package conf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// KeptNodes are nodes that stay powered up when idle: all of them, or Count of those that are usable.
type KeptNodes struct {
	Nodes []string
	Count int // 0: all
}

// SuspendExcept reads SuspendExcNodes (slurm.conf(5)): node names and ranges, each optionally followed by a colon and the number of
// its nodes to keep.
func SuspendExcept(value string) (out []KeptNodes, err error) {
	depth, from := 0, 0
	for i := 0; i <= len(value); i++ {
		switch {
		case i < len(value) && value[i] == '[':
			depth++
		case i < len(value) && value[i] == ']':
			depth--
		case i == len(value) || value[i] == ',' && depth == 0:
			word := strings.TrimSpace(value[from:i])
			from = i + 1
			if word == "" {
				continue
			}
			names, count, counted := strings.Cut(word, ":")
			k := KeptNodes{}
			if counted {
				if k.Count, err = strconv.Atoi(count); err != nil || k.Count < 1 {
					return nil, fmt.Errorf("%.60q is not a number of nodes to keep powered up", count)
				}
			}
			if k.Nodes, err = hostlist.Expand(names); err != nil {
				return nil, err
			}
			out = append(out, k)
		}
	}
	return out, nil
}
