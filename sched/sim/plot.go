package sim

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The size of a plot, and the margins for its labels, in pixels.
const (
	plotWidth, plotHeight = 960, 360
	plotLeft, plotTop     = 70, 40
	plotRight, plotBottom = 20, 40
)

// plotColours are distinct for the colour-blind too (Okabe and Ito).
var plotColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

// WritePlot writes a line for each series over a span of days as SVG.
func WritePlot(to io.Writer, title string, days float64, lines []Series) error {
	highest := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			highest = max(highest, v)
		}
	}
	top := ceiling(highest)
	b := bufio.NewWriter(to)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, plotHeight)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	label(b, plotLeft, 16, "start", title)
	for i := range 5 {
		part := float64(i) / 4
		x, y := plotX(part), plotY(part)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", plotLeft, y, plotWidth-plotRight)
		label(b, plotLeft-6, y+4, "end", fmt.Sprintf("%.4g", top*part))
		label(b, x, plotHeight-plotBottom+18, "middle", fmt.Sprintf("day %.0f", days*part))
	}
	for i, l := range lines {
		colour := plotColours[i%len(plotColours)]
		fmt.Fprintf(b, `<path fill="none" stroke="%s" d="`, colour)
		for k, v := range l.Values {
			fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(k, 1)], plotX((float64(k)+0.5)/float64(len(l.Values))), plotY(v/top))
		}
		b.WriteString("\"/>\n")
		x := float64(plotLeft + 150*i)
		fmt.Fprintf(b, `<path d="M%.0f 28h16" stroke="%s" stroke-width="3"/>`+"\n", x, colour)
		label(b, x+20, 32, "start", l.Name)
	}
	b.WriteString("</svg>\n")
	return b.Flush()
}

func plotX(part float64) float64 { return plotLeft + part*(plotWidth-plotLeft-plotRight) }

func plotY(part float64) float64 {
	return float64(plotHeight-plotBottom) - part*(plotHeight-plotTop-plotBottom)
}

func label(b *bufio.Writer, x, y float64, anchor, text string) {
	var safe strings.Builder
	xml.EscapeText(&safe, []byte(text)) // a strings.Builder takes everything
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, safe.String())
}

// ceiling returns the least of 1, 2, 4 and 8 times a power of ten that is not below x.
func ceiling(x float64) float64 {
	if x <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 4, 8} {
		if n*unit >= x {
			return n * unit
		}
	}
	return 10 * unit
}
