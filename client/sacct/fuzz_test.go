package sacct

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// FuzzSacct: no command line makes sacct panic.
func FuzzSacct(f *testing.F) {
	for _, s := range []string{"-j 1_2,3.batch -o jobid%20 -S now-1hour", "-s CA,R -E 12/25", "-l -b -P --delimiter=x",
		"-o ,,%,%-1,all%9999999", "-i 1-2 -I 3 -k 1-0 -K UNLIMITED", "-N n[1-3 -u 0,root -g 0"} {
		f.Add(s)
	}
	j := &msg.JobRecord{Id: 3, State: msg.JobState_JOB_COMPLETED, StartNs: 1, EndNs: 2e9, Partition: "debug", NumCpus: 2,
		Spec: &msg.JobSpec{Name: "x", Account: "root"}}
	f.Fuzz(func(t *testing.T, line string) {
		if len(line) > 200 || strings.Contains(line, "[") && len(line) > 60 {
			return // lists of hosts may be long
		}
		env := &command.Env{Name: "sacct", Stdout: io.Discard, Stderr: io.Discard,
			Now: func() time.Time { return time.Unix(1800000000, 0) }}
		hits, _, err := opt.Scan(command.NamesOf(Options[:]), strings.Fields(line), true)
		if err != nil || slices.ContainsFunc(hits, func(h opt.Hit) bool { return Options[h.Index].Long == "file" }) {
			return
		}
		o, err := parse(env, strings.Fields(line))
		if err != nil {
			return
		}
		table, err := o.table(env)
		if err != nil {
			return
		}
		for _, r := range o.rows(o.context(env), j) {
			table.AppendRow(nil, o.context(env), r)
		}
	})
}
