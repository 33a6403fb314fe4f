package scontrol

import (
	"bufio"
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// hostnames prints the names of a host list one per line, by default that of the enclosing job.
func (c *control) hostnames(args []string) int {
	list := cmp.Or(c.env.Getenv("SLURM_JOB_NODELIST"), c.env.Getenv("SLURM_NODELIST"))
	if len(args) > 0 {
		list = args[0]
	}
	if list == "" {
		c.env.Errorf("host list is empty")
		return 0
	}
	names, err := hostlist.Expand(list)
	if err != nil {
		return c.failf("Invalid hostlist: %s: %v", list, err)
	}
	out := bufio.NewWriter(c.env.Stdout)
	for _, n := range names {
		_, _ = out.WriteString(n + "\n")
	}
	if out.Flush() != nil {
		return c.env.ErrorExit()
	}
	return 0
}

// maxHostFileBytes bounds a file of host names.
const maxHostFileBytes = 4 << 20

// hostlist folds names into one host list. A name that begins with a slash is a file of names, separated by commas or lines.
func (c *control) hostlist(args []string, sorted bool) int {
	if len(args) == 0 || args[0] == "" {
		return c.fail("invalid encode argument", "expected a list of host names, or the path of a file that holds them")
	}
	text := args[0]
	if strings.HasPrefix(text, "/") {
		data, err := readLimited(text, maxHostFileBytes)
		if err != nil {
			return c.failf("cannot read the list of hosts: %v", err)
		}
		text = strings.Join(strings.FieldsFunc(string(data), func(r rune) bool {
			return r == '\n' || r == ',' || r == ' ' || r == '\t' ||
				r == '\r'
		}), ",")
	}
	names, err := hostlist.Expand(text)
	if err != nil {
		return c.failf("Invalid hostlist: %v", err)
	}
	fold := hostlist.Fold
	if sorted {
		fold = hostlist.FoldSorted
	}
	if _, err := c.env.Stdout.Write([]byte(fold(names) + "\n")); err != nil {
		return c.env.ErrorExit()
	}
	return 0
}

func readLimited(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, errors.New(path + " is too large for a list of names")
	}
	return os.ReadFile(path)
}
