package metrics

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Page is one answer, in the text format of Prometheus (version 0.0.4). Families are written in the order in which they are begun;
// each name may be begun only once, and a family must be complete before the next one begins.
//
// It is written directly rather than collected in a registry: ten thousand nodes have a hundred thousand values, each of which
// would be half a dozen objects there.
type Page struct {
	text   []byte
	name   string
	labels []string
	kind   string // Content-Type
}

// textFormat is the Content-Type of families.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// Types of families.
const (
	gauge   = "gauge"
	counter = "counter"
)

// Gauge begins a family of values that go up and down. labels are the names of its labels.
func (p *Page) Gauge(name, help string, labels ...string) *Page {
	return p.begin(gauge, name, help, labels)
}

// Counter begins a family of values that only grow. Its name should end in _total, unless it is given by another exporter.
func (p *Page) Counter(name, help string, labels ...string) *Page {
	return p.begin(counter, name, help, labels)
}

func (p *Page) begin(kind, name, help string, labels []string) *Page {
	p.name, p.labels = name, labels
	p.text = append(p.text, "# HELP "+name+" "...)
	p.text = append(p.text, escape(help, false)...)
	p.text = append(p.text, "\n# TYPE "+name+" "+kind+"\n"...)
	return p
}

// Add adds a value with its label values, in the order given to Gauge or Counter.
func (p *Page) Add(v float64, values ...string) *Page {
	p.text = append(p.text, p.name...)
	for i, l := range p.labels {
		p.text = append(p.text, ",{"[b2i(i == 0)])
		p.text = append(p.text, l...)
		p.text = append(p.text, '=', '"')
		p.text = append(p.text, escape(values[i], true)...)
		p.text = append(p.text, '"')
	}
	if len(p.labels) > 0 {
		p.text = append(p.text, '}')
	}
	p.text = append(p.text, ' ')
	p.text = appendValue(p.text, v)
	p.text = append(p.text, '\n')
	return p
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func appendValue(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// escape escapes characters that would end a line or a label's value, and replaces invalid UTF-8, which would make the page
// unreadable.
func escape(s string, quotes bool) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c == '\\' || c == '\n' || c == '"' && quotes || c >= 0x80 {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "\n", `\n`)
	if quotes {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return s
}

// Gather adds the content of a registry: histograms and metrics of the Go runtime.
func (p *Page) Gather(g prometheus.Gatherer) error {
	families, err := g.Gather()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return err
		}
	}
	p.text = append(p.text, b.Bytes()...)
	return nil
}

// JSON turns the page into a JSON document.
func (p *Page) JSON(v any) (err error) {
	p.kind = "application/json"
	p.text, err = json.Marshal(v)
	return err
}

// Bytes returns the page.
func (p *Page) Bytes() []byte { return p.text }
