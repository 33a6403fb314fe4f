// Package fit evaluates static properties of a node: feature expressions, and their explanation.
package fit

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of a constraint expression.
const (
	maxLength       = 4096
	maxDepth        = 32
	maxAlternatives = 64
)

// Constraint is a parsed --constraint (sbatch(1), -C). A set of nodes
// satisfies it when it satisfies one of the alternatives. Without brackets
// there is one alternative; `[a|b]` gives one for each member.
type Constraint struct {
	Alternatives []Alternative
}

// Alternative is one way to satisfy a Constraint.
type Alternative struct {
	Each   *Expr // every node satisfies it; nil: any node
	Counts []Count
}

// Count asks for at least N nodes that satisfy Of.
type Count struct {
	Of *Expr
	N  int
}

// Expr is a predicate over a node's features: a name, or all or any of its parts.
type Expr struct {
	Name  string
	Parts []*Expr
	Any   bool
}

// Match reports whether a node with these features satisfies e.
func (e *Expr) Match(features []string) bool {
	if e == nil {
		return true
	}
	if e.Parts == nil {
		for _, f := range features {
			if f == e.Name {
				return true
			}
		}
		return false
	}
	for _, p := range e.Parts {
		if p.Match(features) == e.Any {
			return e.Any
		}
	}
	return !e.Any
}

// String writes e with the parentheses it needs; "&" binds tighter than "|".
func (e *Expr) String() string {
	if e == nil {
		return ""
	}
	if e.Parts == nil {
		return e.Name
	}
	words := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		words[i] = p.String()
		if p.Any && !e.Any {
			words[i] = "(" + words[i] + ")"
		}
	}
	if e.Any {
		return strings.Join(words, "|")
	}
	return strings.Join(words, "&")
}

// Names lists the features that e mentions, in order of appearance.
func (e *Expr) Names() []string {
	if e == nil {
		return nil
	}
	if e.Parts == nil {
		return []string{e.Name}
	}
	var out []string
	for _, p := range e.Parts {
		out = append(out, p.Names()...)
	}
	return out
}

// ParseConstraint parses a constraint. Every node satisfies the empty string. "&" binds tighter than "|"; a comma is an "&".
func ParseConstraint(s string) (*Constraint, error) {
	if s == "" {
		return &Constraint{Alternatives: []Alternative{{}}}, nil
	}
	if len(s) > maxLength {
		return nil, fmt.Errorf("cannot read constraint: it has %d characters, the limit is %d", len(s), maxLength)
	}
	p := &parser{text: s}
	n, err := p.or(0)
	if err == nil && p.pos < len(s) {
		err = p.fault("unexpected %q", s[p.pos:p.pos+1])
	}
	if err != nil {
		return nil, err
	}
	return p.flatten(n)
}

// node is the syntax tree: a name, or parts; bracket marks [...], count marks *n.
type node struct {
	name    string
	parts   []*node
	any     bool
	bracket bool
	count   int
}

type parser struct {
	text string
	pos  int
	in   [2]bool // inside of "()", of "[]"
}

func (p *parser) fault(format string, args ...any) error {
	return fmt.Errorf("cannot read constraint %q at character %d: %s", p.text, p.pos+1, fmt.Sprintf(format, args...))
}

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *parser) or(depth int) (*node, error) {
	return p.list(depth, true, func() (*node, error) {
		return p.list(depth, false, func() (*node, error) { return p.item(depth) })
	})
}

func (p *parser) list(depth int, any bool, next func() (*node, error)) (*node, error) {
	if depth > maxDepth {
		return nil, p.fault("nested deeper than %d", maxDepth)
	}
	first, err := next()
	if err != nil {
		return nil, err
	}
	n := &node{parts: []*node{first}, any: any}
	for c := p.peek(); any && c == '|' || !any && (c == '&' || c == ','); c = p.peek() {
		p.pos++
		part, err := next()
		if err != nil {
			return nil, err
		}
		n.parts = append(n.parts, part)
	}
	if len(n.parts) == 1 {
		return first, nil
	}
	return n, nil
}

func (p *parser) item(depth int) (*node, error) {
	var n *node
	var err error
	switch c := p.peek(); {
	case c == '(' || c == '[':
		n, err = p.group(depth, c)
	case nameByte(c):
		from := p.pos
		for nameByte(p.peek()) {
			p.pos++
		}
		n = &node{name: p.text[from:p.pos]}
	case c == 0:
		err = p.fault("a feature name is missing at the end")
	default:
		err = p.fault("a feature name is missing before %q", string(rune(c)))
	}
	if err != nil {
		return nil, err
	}
	return n, p.counted(n)
}

func (p *parser) group(depth int, open byte) (*node, error) {
	closing, kind := byte(')'), 0
	if open == '[' {
		closing, kind = ']', 1
	}
	if p.in[kind] {
		return nil, p.fault("%q inside of another %q", string(rune(open)), string(rune(open)))
	}
	p.in[kind] = true
	defer func() { p.in[kind] = false }()
	at := p.pos
	p.pos++
	inner, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	if p.peek() != closing {
		p.pos = at
		return nil, p.fault("%q has no matching %q", string(rune(open)), string(rune(closing)))
	}
	p.pos++
	if inner.count > 0 || inner.bracket { // keep it separate from a count of its own
		inner = &node{parts: []*node{inner}}
	}
	if open == '[' {
		inner.bracket = true
	}
	return inner, nil
}

func (p *parser) counted(n *node) error {
	if p.peek() != '*' {
		return nil
	}
	p.pos++
	from := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	count, err := strconv.Atoi(p.text[from:p.pos])
	if err != nil || count < 1 || count > 1<<20 {
		return p.fault("a node count from 1 to %d must follow \"*\"", 1<<20)
	}
	if n.bracket {
		return p.fault("a count cannot follow \"]\"")
	}
	n.count = count
	return nil
}

func nameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c == ':' || c == '=' || c == '/' || c == '+' || c == '%' || c == '@' || c >= 0x80 ||
		'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// flatten turns the tree into alternatives.
func (p *parser) flatten(n *node) (*Constraint, error) {
	alts := []Alternative{{}}
	for _, part := range conjuncts(n) {
		options, err := p.options(part)
		if err != nil {
			return nil, err
		}
		if len(alts)*len(options) > maxAlternatives {
			return nil, fmt.Errorf("cannot read constraint %q: it has more than %d alternatives", p.text, maxAlternatives)
		}
		var next []Alternative
		for _, a := range alts {
			for _, o := range options {
				next = append(next, a.and(o))
			}
		}
		alts = next
	}
	return &Constraint{Alternatives: alts}, nil
}

// conjuncts returns the parts that must all hold.
func conjuncts(n *node) []*node {
	if n.count > 0 || n.name != "" || n.any || n.bracket && hasOr(n) {
		return []*node{n}
	}
	var out []*node
	for _, part := range n.parts {
		out = append(out, conjuncts(part)...)
	}
	return out
}

func hasOr(n *node) bool { return n.any }

func (p *parser) options(n *node) ([]Alternative, error) {
	if n.bracket && n.any {
		var out []Alternative
		for _, part := range n.parts {
			sub, err := p.flatten(part)
			if err != nil {
				return nil, err
			}
			out = append(out, sub.Alternatives...)
		}
		return out, nil
	}
	count := n.count
	e, err := p.expr(&node{name: n.name, parts: n.parts, any: n.any})
	if err != nil {
		return nil, err
	}
	if count > 0 {
		return []Alternative{{Counts: []Count{{Of: e, N: count}}}}, nil
	}
	return []Alternative{{Each: e}}, nil
}

// expr converts n to a predicate over one node: no counts or brackets inside.
func (p *parser) expr(n *node) (*Expr, error) {
	if n.count > 0 || n.bracket {
		return nil, fmt.Errorf("cannot read constraint %q: a count or bracket cannot stand inside \"|\" or \"()\"", p.text)
	}
	if n.name != "" {
		return &Expr{Name: n.name}, nil
	}
	e := &Expr{Any: n.any}
	for _, part := range n.parts {
		sub, err := p.expr(part)
		if err != nil {
			return nil, err
		}
		e.Parts = append(e.Parts, sub)
	}
	if len(e.Parts) == 1 {
		return e.Parts[0], nil
	}
	return e, nil
}

// and joins two alternatives.
func (a Alternative) and(b Alternative) Alternative {
	out := Alternative{Each: a.Each, Counts: append(append([]Count(nil), a.Counts...), b.Counts...)}
	switch {
	case a.Each == nil:
		out.Each = b.Each
	case b.Each != nil:
		out.Each = &Expr{Parts: []*Expr{a.Each, b.Each}}
	}
	return out
}
