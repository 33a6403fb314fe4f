package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Dimensions of the picture in SVG units; SVG scales.
const (
	picWidth, picHeight   = 1200, 560
	left, right           = 74, 24
	top, chartHeight      = 84, 270
	waitTop, waitHeight   = 404, 56 // below the chart and its dates
	legendTop, legendLine = 498, 24
	mostBars              = 1008 // six weeks of hours
)

// appendSVG draws the hours: GPUs by state, stacked, and below them the number of GPUs requested by waiting jobs.
func (s *series) appendSVG(b []byte) []byte {
	list, hours := s.merged(mostBars)
	p := &picture{b: b, list: list, step: float64(picWidth-left-right) / float64(len(list))}
	for i := range list {
		p.most, p.mostWaiting = max(p.most, list[i].total()), max(p.mostWaiting, list[i].waiting)
	}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Helvetica, Arial, sans-serif" `+
		`font-size="14" fill="#222">`, picWidth, picHeight, picWidth, picHeight)
	p.add(`<title>%s</title>`, xml(s.what()))
	p.hatches()
	p.add(`<rect width="%d" height="%d" fill="#fff"/>`, picWidth, picHeight)
	every := "hour by hour"
	if hours > 1 {
		every = fmt.Sprintf("a bar is %d hours", hours)
	}
	p.text(left, 27, `font-size="20" font-weight="bold"`, s.what()+", "+every)
	p.text(left, 47, "", s.since.Format(timespec.Layout)+" to "+s.until.Format(timespec.Layout+" MST"))
	for i, line := range wrapped(s.summary()) {
		p.text(left, 63+15*float64(i), `fill="#555" font-size="12"`, line)
	}
	p.axis(top, chartHeight, max(p.most, 1), "GPUs", 5)
	p.add(`<g shape-rendering="crispEdges">`)
	p.bars()
	p.add(`</g>`)
	p.waiting()
	p.days()
	p.legend(s)
	p.add(`</svg>`)
	return p.b
}

// lineChars is the number of small letters that fit in a line of the picture, even in a wide font.
const lineChars = 155

// wrapped splits a summary into lines; two fit.
func wrapped(text string) (lines []string) {
	line := ""
	for part := range strings.SplitAfterSeq(text, "; ") {
		if line != "" && len(line)+len(part) > lineChars {
			lines, line = append(lines, line), ""
		}
		line += part
	}
	return append(lines, line)
}

// picture is a picture being drawn.
type picture struct {
	b                 []byte
	list              []slot
	step              float64 // width of a bar
	most, mostWaiting float64
}

func (p *picture) add(text string, args ...any) {
	p.b = append(fmt.Appendf(p.b, text, args...), '\n')
}

func xml(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}

func (p *picture) text(x, y float64, how, text string) {
	p.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, how, xml(text))
}

func (p *picture) hatches() {
	p.add(`<defs>`)
	const pattern = `<pattern id="h%d" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="6" height="6" fill="%s"/><rect width="%g" height="6" fill="%s"/></pattern>`
	for k, kind := range kindOf {
		if kind.hatch != "" {
			p.add(pattern, k, kind.color, kind.stripe, kind.hatch)
		}
	}
	p.add(`<pattern id="gap" width="7" height="7" patternUnits="userSpaceOnUse"><rect width="7" height="7" fill="#fff"/>` +
		`<circle cx="2" cy="2" r="0.9" fill="#bbb"/></pattern>`)
	p.add(`</defs>`)
}

func fill(k int) string {
	if kindOf[k].hatch != "" {
		return fmt.Sprintf("url(#h%d)", k)
	}
	return kindOf[k].color
}

// niceStep is 1, 2 or 5 times a power of ten, such that a scale up to most has at most steps steps.
func niceStep(most float64, steps int) float64 {
	raw := most / float64(steps)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*power >= raw-1e-9 {
			return max(f*power, 1)
		}
	}
	return max(10*power, 1)
}

// axis draws a scale with horizontal lines.
func (p *picture) axis(y, height, most float64, name string, steps int) {
	step := niceStep(most, steps)
	for step > most { // a scale needs a mark besides 0
		step = max(1, math.Floor(step/2))
	}
	for v := 0.0; v <= most+1e-9; v += step {
		at := y + height - v/most*height
		p.add(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d4d4d4"/>`, left, picWidth-right, at, at)
		p.text(left-8, at+5, `text-anchor="end"`, fmt.Sprintf("%.0f", v))
	}
	p.add(`<text transform="translate(20 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, y+height/2, xml(name))
}

// bars stacks the states of the GPUs in each slot. Equal neighbours are drawn as one bar, to avoid seams.
func (p *picture) bars() {
	scale := chartHeight / max(p.most, 1)
	for i := 0; i < len(p.list); {
		x := &p.list[i]
		next := i + 1
		for next < len(p.list) && p.list[next].gpus == x.gpus && (p.list[next].covered > 0) == (x.covered > 0) {
			next++
		}
		at, width := left+float64(i)*p.step, float64(next-i)*p.step
		i = next
		if x.covered == 0 {
			p.add(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="url(#gap)"/>`, at, top, width, chartHeight)
			continue
		}
		base := float64(top + chartHeight)
		for k, v := range x.gpus {
			if h := v * scale; h >= 0.05 {
				base -= h
				p.add(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`, at, base, width, h, fill(k))
			}
		}
	}
	p.add(`<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#222"/>`, left, picWidth-right, top+chartHeight, top+chartHeight)
}

// waiting draws below the chart how many GPUs waiting jobs requested.
func (p *picture) waiting() {
	most := max(math.Ceil(p.mostWaiting), 1)
	p.axis(waitTop, waitHeight, most, "asked", 1)
	p.text(left, waitTop-6, `font-size="12" fill="#555"`, "GPUs requested by waiting jobs")
	for i := range p.list {
		if h := p.list[i].waiting / most * waitHeight; h >= 0.05 {
			p.add(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="#C14B00"/>`, left+float64(i)*p.step, waitTop+waitHeight-h,
				p.step, h)
		}
	}
	p.add(`<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#222"/>`, left, picWidth-right, waitTop+waitHeight, waitTop+waitHeight)
}

// days draws the beginnings of days, with as many dates as fit; for a period of a few days also hours.
func (p *picture) days() {
	room := 0.0
	span := p.list[len(p.list)-1].start.Sub(p.list[0].start).Hours()
	for i := range p.list {
		x := p.list[i].start
		at := left + float64(i)*p.step
		newDay := i == 0 && x.Hour() == 0 || i > 0 && x.YearDay() != p.list[i-1].start.YearDay()
		if newDay {
			p.add(`<line x1="%.2f" x2="%.2f" y1="%d" y2="%d" stroke="#222" stroke-opacity="0.25"/>`, at, at, top, waitTop+waitHeight)
		}
		text := x.Format("Mon 2 Jan")
		switch {
		case newDay:
		case span <= 72 && x.Hour()%6 == 0, span <= 6, i == 0 && span <= 12:
			text = x.Format("15:04")
		default:
			continue
		}
		if at < room || at+3+7.5*float64(len(text)) > picWidth {
			continue // no room
		}
		p.add(`<line x1="%.2f" x2="%.2f" y1="%d" y2="%d" stroke="#222"/>`, at, at, top+chartHeight, top+chartHeight+6)
		p.text(at+3, top+chartHeight+19, `font-size="13"`, text)
		room = at + 8*float64(len(text)) + 6
	}
}

func (p *picture) legend(s *series) {
	_, _, gap := s.sums()
	x, y := float64(left), float64(legendTop)
	entry := func(paint, name string) {
		if x+30+6.7*float64(len(name)) > picWidth-right {
			x, y = left, y+legendLine
		}
		p.add(`<rect x="%.1f" y="%.1f" width="18" height="14" fill="%s" stroke="#777" stroke-width="0.6"/>`, x, y-12, paint)
		p.text(x+24, y, "", name)
		x += 24 + 6.7*float64(len(name)) + 22
	}
	for k := range kindOf {
		entry(fill(k), kindOf[k].name)
	}
	if gap > 0.05 {
		entry("url(#gap)", "not recorded")
	}
}
