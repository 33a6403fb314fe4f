package sim

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// textbook is EASY backfill as a textbook has it, over one pool: start the
// head while it fits; else shadow is the first time by estimates that it fits
// and extra what is free then beyond its need; scan the rest in order, start
// what fits now and ends by the shadow or fits into extra, which it uses up.
func textbook(jobs []Job, procs int) []int64 {
	type running struct {
		end, limit int64
		procs      int
	}
	starts := make([]int64, len(jobs))
	var queue []int
	var run []running
	free, next := procs, 0
	for done := 0; done < len(jobs); {
		now := int64(1) << 60
		for _, r := range run {
			now = min(now, r.end)
		}
		if next < len(jobs) {
			now = min(now, jobs[next].Submit)
		}
		run = slices.DeleteFunc(run, func(r running) bool {
			if r.end <= now {
				free += r.procs
				done++
			}
			return r.end <= now
		})
		for ; next < len(jobs) && jobs[next].Submit <= now; next++ {
			queue = append(queue, next)
		}
		start := func(i int) {
			starts[i] = now
			free -= jobs[i].Procs
			run = append(run, running{now + jobs[i].RunS, now + jobs[i].RequestS, jobs[i].Procs})
		}
		for len(queue) > 0 && jobs[queue[0]].Procs <= free {
			start(queue[0])
			queue = queue[1:]
		}
		if len(queue) == 0 {
			continue
		}
		slices.SortFunc(run, func(a, b running) int { return cmp.Compare(a.limit, b.limit) })
		shadow, extra := int64(0), free
		for i, r := range run {
			if extra += r.procs; extra >= jobs[queue[0]].Procs && (i+1 == len(run) || run[i+1].limit > r.limit) {
				shadow = r.limit
				break
			}
		}
		extra -= jobs[queue[0]].Procs
		rest := queue[:1]
		for _, i := range queue[1:] {
			j := &jobs[i]
			inTime := now+j.RequestS <= shadow
			if j.Procs > free || !inTime && j.Procs > extra {
				rest = append(rest, i)
				continue
			}
			if !inTime {
				extra -= j.Procs
			}
			start(i)
		}
		queue = rest
	}
	return starts
}

// TestEveryStartIsTheTextbooks compares job by job on random traces.
func TestEveryStartIsTheTextbooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		procs := rapid.IntRange(1, 12).Draw(t, "procs")
		var jobs []Job
		now := int64(0)
		for i := range rapid.IntRange(1, 60).Draw(t, "jobs") {
			now += rapid.Int64Range(0, 6).Draw(t, "gap")
			limit := rapid.Int64Range(1, 30).Draw(t, "limit")
			jobs = append(
				jobs,
				Job{
					ID:       int64(i),
					Submit:   now,
					RequestS: limit,
					RunS:     rapid.Int64Range(1, limit).Draw(t, "run"),
					Procs:    rapid.IntRange(1, procs).Draw(t, "p"),
					User:     fmt.Sprint(i % 3),
				},
			)
		}
		r, err := Run(Options{Jobs: jobs, Procs: procs, Policy: "easy"})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range textbook(jobs, procs) {
			if r.Records[i].Start != want {
				t.Fatalf("job %d starts at %d, in the textbook at %d", i, r.Records[i].Start, want)
			}
		}
	})
}

func FuzzParseSWF(f *testing.F) {
	f.Add([]byte("; comment\n1 0 -1 10 4 -1 -1 4 20 -1 -1 7 -1 -1 -1 -1 -1 -1\n"))
	f.Add([]byte("1 2 3\n"))
	f.Add([]byte("1 -1 0 1e300 NaN 0 0 0 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		jobs, _, err := ParseSWF(bytes.NewReader(b))
		for _, j := range jobs {
			if err != nil || j.RunS <= 0 || j.Procs <= 0 || j.RunS > j.RequestS || j.Submit < 0 {
				t.Fatalf("%+v, %v", j, err)
			}
		}
	})
}

// TestOddTraces: the archive's marks for unknown values, and files that are not traces.
func TestOddTraces(t *testing.T) {
	const trace = `; MaxProcs: 8
1 10 -1 100 4 -1 -1 4 50
2 5 -1 -1 4 -1 -1 4 50
3 20 -1 0 4 -1 -1 4 50
4 20 -1 30 -1 -1 -1 8 50
5 15 -1 30 2 -1 -1 -1 -1 -1 0 7
6 -1 -1 30 2 -1 -1 2 60
`
	jobs, left, err := ParseSWF(strings.NewReader(trace))
	want := []Job{
		{ID: 1, Submit: 10, RunS: 50, Procs: 4, RequestS: 50, User: "q-1"},
		{ID: 5, Submit: 15, RunS: 30, Procs: 2, RequestS: 30, User: "7"},
		{ID: 4, Submit: 20, RunS: 30, Procs: 8, RequestS: 50, User: "q-1"},
	}
	if err != nil || left != 3 || !slices.Equal(jobs, want) {
		t.Errorf("%+v, %d left out, %v", jobs, left, err)
	}
	if fit, large := Fitting(jobs, 4); large != 1 || !slices.Equal(fit, want[:2]) || len(jobs) != 3 {
		t.Errorf("on 4 processors: %+v, %d left out", fit, large)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for i := range 2000 {
		fmt.Fprintf(z, "%d %d -1 %d 4 -1 -1 4 5000\n", i, i*i, i%977+1)
	}
	z.Close()
	path := filepath.Join(t.TempDir(), "cut.swf.gz")
	if err := os.WriteFile(path, zipped.Bytes()[:zipped.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadSWF(path); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that was cut off: %v", err)
	}
}
