package sim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
)

// crowd returns n jobs of two users for a machine of 32 processors, more than it can start at once.
func crowd(n int) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{ID: int64(i + 1), Submit: int64(i * 40), RunS: int64(60 + 97*i%4000), Procs: 1 + i*7%32,
			User: string('a' + rune(i%2)), Account: "g", QOS: string('1' + rune(i%2))}
		jobs[i].RequestS = 2 * jobs[i].RunS
	}
	return jobs
}

// TestReportAddsUp: classes of width and of run time each hold every job once, their waits add up to the whole, the wait by area is that
// of a sum over the records, and a timeline holds the same work.
func TestReportAddsUp(t *testing.T) {
	jobs := crowd(400)
	r, err := Run(Options{Jobs: jobs, Procs: 32, Policy: "easy"})
	if err != nil {
		t.Fatal(err)
	}
	n, waits, all := 0, 0.0, 0.0
	for _, c := range r.Classes {
		n, waits = n+c.Jobs, waits+float64(c.Jobs)*c.WaitMean
	}
	var area, byArea float64
	for i, rec := range r.Records {
		work := float64(jobs[i].Procs) * float64(jobs[i].RunS)
		all += float64(rec.Start - rec.Submit)
		area, byArea = area+work, byArea+work*float64(rec.Start-rec.Submit)
	}
	if n != 2*len(jobs) || !near(waits, 2*all) || all == 0 {
		t.Errorf("the classes have %d jobs and wait for %.0f s; there are %d, twice, which wait for %.0f s", n, waits, len(jobs), 2*all)
	}
	if !near(r.WaitArea, byArea/area) {
		t.Errorf("wait by area %.1f, want %.1f", r.WaitArea, byArea/area)
	}
	const parts = 77
	_, used, backlog := r.Timeline(jobs, 32, parts)
	width, worked, waited := r.Days()*86400/parts, 0.0, 0.0
	for i := range parts {
		if used.Values[i] > 1.000001 {
			t.Errorf("part %d: %.3f of the machine is in use", i, used.Values[i])
		}
		worked, waited = worked+used.Values[i]*width*32, waited+backlog.Values[i]*width*32*3600
	}
	if !near(worked, area) || !near(waited, byArea) {
		t.Errorf("over time %.0f processor seconds and a backlog of %.0f, want %.0f and %.0f", worked, waited, area, byArea)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

func TestScale(t *testing.T) {
	jobs := []Job{{Submit: 100, RunS: 10, RequestS: 20}, {Submit: 110, RunS: 1, RequestS: 1}, {Submit: 113, RunS: 3, RequestS: 9}}
	got, err := Scale(jobs, 0.5, 0.25)
	want := []Job{{Submit: 100, RunS: 3, RequestS: 5}, {Submit: 105, RunS: 1, RequestS: 1}, {Submit: 107, RunS: 1, RequestS: 2}}
	for i := range want {
		if err != nil || got[i] != want[i] {
			t.Errorf("%+v, want %+v (%v)", got[i], want[i], err)
		}
	}
	for _, f := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := Scale(jobs, 1, f); err == nil {
			t.Errorf("times × %g were accepted", f)
		}
	}
	if f := Perturbed(5); f[0] != 0.997 || f[2] != 1 || !near(f[4], 1.003) {
		t.Errorf("factors %v", f)
	}
}

func TestSpread(t *testing.T) {
	var s Spread
	for _, x := range []float64{3, 1, 8} {
		s.Add(Figures{Wait: x, Max: -x})
	}
	if s.Mean.Wait != 4 || s.Low.Wait != 1 || s.High.Wait != 8 || s.Low.Max != -8 || s.High.Max != -1 {
		t.Errorf("%+v", s)
	}
	if over := (Figures{Wait: 150, Max: 50}).Over(Figures{Wait: 100, Max: 100}); over.Wait != 50 || over.Max != -50 || over.P99 != 0 {
		t.Errorf("%+v", over)
	}
}

// TestWeightsCount: user a uses far more than user b. b waits less under fair share, and more under a QOS that favours a.
func TestWeightsCount(t *testing.T) {
	jobs := crowd(600)
	for i := range jobs {
		if jobs[i].User == "a" {
			jobs[i].RunS, jobs[i].RequestS = 3*jobs[i].RunS, 3*jobs[i].RequestS
		}
	}
	waits := func(w *record.Weights, qos map[string]uint32) (a, b float64) {
		r, err := Run(Options{Jobs: jobs, Procs: 32, Policy: "easy", Weights: w, QOS: qos})
		if err != nil {
			t.Fatal(err)
		}
		var sums [2]mean
		for i, rec := range r.Records {
			sums[jobs[i].User[0]-'a'].add(float64(rec.Start - rec.Submit))
		}
		return sums[0].value(), sums[1].value()
	}
	a0, b0 := waits(nil, nil)
	if a, b := waits(&record.Weights{FairShare: 1000}, nil); !(a > a0 && b < b0) {
		t.Errorf("under fair share the one who uses more waits %.0f s instead of %.0f, the other %.0f instead of %.0f", a, a0, b, b0)
	}
	if a, b := waits(&record.Weights{QOS: 1000}, map[string]uint32{"1": 10}); !(a < a0 && b > b0) {
		t.Errorf("with the better QOS a user waits %.0f s instead of %.0f, the other %.0f instead of %.0f", a, a0, b, b0)
	}
}

// TestUsageHalves: usage equals a sum over small intervals, each of them decayed by the half-life.
func TestUsageHalves(t *testing.T) {
	l := &ledger{halfLife: 100, users: map[string]*usage{}, factors: map[string]float64{}}
	l.occupy("u", 4, 0)
	l.occupy("u", -4, 50)
	l.occupy("v", 1, 50)
	u, v := l.users["u"], l.users["v"]
	u.until(200, l.halfLife)
	v.until(200, l.halfLife)
	l.all.until(200, l.halfLife)
	sum := 0.0
	for i := range 50 * 1000 {
		sum += 4.0 / 1000 * math.Exp2(-(200-(float64(i)+0.5)/1000)/100)
	}
	if !(math.Abs(u.spent-sum) < 1e-6*sum) || !near(u.spent+v.spent, l.all.spent) {
		t.Errorf("usage %.6f, want %.6f; of all %.6f, want %.6f", u.spent, sum, l.all.spent, u.spent+v.spent)
	}
}

func TestPlotIsXML(t *testing.T) {
	var b bytes.Buffer
	lines := []Series{{"<a & b>", []float64{0, 3, 2.5}}, {"none", []float64{0, 0, 0}}}
	if err := WritePlot(&b, "waits < 3 & more", 12, lines); err != nil {
		t.Fatal(err)
	}
	d, text, paths := xml.NewDecoder(&b), "", 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.CharData:
			text += string(x)
		case xml.StartElement:
			for _, a := range x.Attr {
				if a.Name.Local == "d" && a.Value[0] == 'M' && bytes.Count([]byte(a.Value), []byte("L")) == 2 {
					paths++
				}
			}
		}
	}
	if paths != 2 || !bytes.Contains([]byte(text), []byte("<a & b>")) || !bytes.Contains([]byte(text), []byte("waits < 3 & more")) {
		t.Errorf("%d lines, text %q", paths, text)
	}
	for x, want := range map[float64]float64{0: 1, 0.7: 0.8, 1: 1, 3: 4, 8.1: 10, 250: 400} {
		if got := ceiling(x); !near(got, want) {
			t.Errorf("ceiling(%g) is %g, want %g", x, got, want)
		}
	}
}
