package hostlist

import (
	"fmt"
	"strconv"
	"strings"
)

// parser walks once over text.
type parser struct {
	text string
	pos  int
}

func (p *parser) fail(pos int, format string, args ...any) error {
	return &SyntaxError{Text: p.text, Pos: pos, Msg: fmt.Sprintf(format, args...)}
}

func parse(s string) ([]entry, error) {
	p := &parser{text: s}
	if len(s) > maxText {
		return nil, p.fail(0, "it has %d bytes, the limit is %d", len(s), maxText)
	}
	var entries []entry
	for p.pos < len(s) {
		if separates(s[p.pos]) {
			p.pos++
			continue
		}
		begin := p.pos
		e, err := p.entry()
		if err != nil {
			return nil, err
		}
		if e.size() > maxName {
			return nil, p.fail(begin, "a name cannot be longer than %d characters", maxName)
		}
		if entries = append(entries, e); len(entries) > Limit {
			return nil, &LimitError{Count: uint64(len(entries))}
		}
	}
	return entries, nil
}

// entry reads up to the next separator.
func (p *parser) entry() (entry, error) {
	var e entry
	for p.pos < len(p.text) && !separates(p.text[p.pos]) {
		start := p.pos
		text, err := p.literal()
		if err != nil {
			return nil, err
		}
		if p.pos == len(p.text) || p.text[p.pos] != '[' {
			if len(e) > 0 {
				return nil, p.fail(start, "%q follows a bracket; a name with a range must end in its number, so list the names one by one",
					text)
			}
			return append(e, part{text: text}), nil
		}
		spans, err := p.bracket()
		if err != nil {
			return nil, err
		}
		e = append(e, part{text: text, spans: spans})
	}
	return e, nil
}

// literal reads text up to a bracket or a separator.
func (p *parser) literal() (string, error) {
	start := p.pos
	for ; p.pos < len(p.text) && p.text[p.pos] != '[' && !separates(p.text[p.pos]); p.pos++ {
		switch c := p.text[p.pos]; {
		case c == ']':
			return "", p.fail(p.pos, "']' without a '['")
		case c < 0x20 || c == 0x7f:
			return "", p.fail(p.pos, "a name cannot contain the control character %#02x", c)
		}
	}
	return p.text[start:p.pos], nil
}

// bracket reads "[range,range]"; it never returns an empty list.
func (p *parser) bracket() ([]span, error) {
	open := p.pos
	n := strings.IndexByte(p.text[open:], ']')
	if n < 0 {
		return nil, p.fail(open, "'[' without a ']'")
	}
	var spans []span
	p.pos++
	for {
		s, err := p.span()
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
		if len(spans) > Limit {
			return nil, &LimitError{Count: uint64(len(spans))}
		}
		c := p.text[p.pos]
		p.pos++
		if c == ']' {
			return spans, nil
		}
	}
}

// span reads "3" or "003-017" and stops at the following ',' or ']'. The caller has made sure that there is a ']'.
func (p *parser) span() (span, error) {
	start := p.pos
	lo, err := p.number()
	if err != nil {
		return span{}, err
	}
	s := span{lo: lo, hi: lo, width: p.pos - start}
	if p.text[p.pos] == '-' {
		p.pos++
		if s.hi, err = p.number(); err != nil {
			return span{}, err
		}
	}
	if c := p.text[p.pos]; c != ',' && c != ']' {
		return span{}, p.fail(p.pos, "%q is not allowed in a range; write it as 1-3,5", c)
	}
	if s.hi < s.lo {
		return span{}, p.fail(start, "the range %s runs backwards; write %d-%d", p.text[start:p.pos], s.hi, s.lo)
	}
	return s, nil
}

func (p *parser) number() (uint64, error) {
	start := p.pos
	for p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9' {
		p.pos++
	}
	if p.pos == start {
		return 0, p.fail(start, "a number is missing; write a range as 1-3,5")
	}
	if p.pos-start > maxDigits {
		return 0, p.fail(start, "the number has more than %d digits", maxDigits)
	}
	n, err := strconv.ParseUint(p.text[start:p.pos], 10, 64)
	if err != nil {
		return 0, p.fail(start, "%v", err)
	}
	return n, nil
}
