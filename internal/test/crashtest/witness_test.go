package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// witnessed is the beginning of a batch script that testifies: say start, then say end. $1 is the file, $2 the exit code, $3 seconds.
const witnessed = `#!/bin/sh
say() { read up _ </proc/uptime; echo "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $$ $1 $up" >>"$w"; sync "$w"; }
w=$1 code=${2:-0} secs=${3:-0}
say start
`

// plainJob runs for $3 seconds and exits with $2.
const plainJob = witnessed + `[ "$secs" = 0 ] || sleep "$secs"
say end
exit $code
`

// gatedJob waits until the file of its witness with .go at the end is there. It does not read a pipe, so that nothing of it
// depends on this process.
const gatedJob = witnessed + `while [ ! -e "$w.go" ]; do sleep 0.05; done
say end
exit $code
`

// testimony is one line of a witness file.
type testimony struct {
	job, restarts uint32
	pid           int
	what          string // start or end
	uptime        float64
}

// read gives what a witness file holds; a line that is not whole is an error.
func readWitness(path string) (all []testimony, err error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if line == "" {
			continue
		}
		var l testimony
		if n, err := fmt.Sscanf(line, "%d %d %d %s %f\n", &l.job, &l.restarts, &l.pid, &l.what, &l.uptime); err != nil || n != 5 {
			return all, fmt.Errorf("cannot read the line %q of %s: %w", line, path, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// ranOnce says what is wrong with a testimony of one whole run; nil: nothing.
func ranOnce(all []testimony) error {
	if len(all) != 2 || all[0].what != "start" || all[1].what != "end" || all[0].job != all[1].job || all[0].pid != all[1].pid ||
		all[0].restarts != 0 || all[1].restarts != 0 || all[0].uptime > all[1].uptime {
		return fmt.Errorf("the witness has %v, want one start and one end", all)
	}
	return nil
}

// witness is the file of a new witness in the cluster's folder, which every user may write to.
func (c *cluster) witness(name string) string {
	dir := filepath.Join(c.dir, "witness")
	must(c.t, os.MkdirAll(dir, 0o777))
	must(c.t, os.Chmod(dir, 0o777))
	return filepath.Join(dir, name)
}

// started waits for a witness's first line and returns it.
func (c *cluster) started(path string) testimony { return c.line(path, 0) }

func (c *cluster) line(path string, n int) testimony {
	c.t.Helper()
	var all []testimony
	c.await(fmt.Sprintf("line %d of %s", n+1, path), func() bool {
		all, _ = readWitness(path)
		return len(all) > n
	})
	return all[n]
}

// open lets a gated job go on.
func open(c *cluster, witness string) { must(c.t, os.WriteFile(witness+".go", nil, 0o644)) }
