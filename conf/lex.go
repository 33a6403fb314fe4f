package conf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Limits of the input.
const (
	maxFileBytes    = 16 << 20
	maxIncludes     = 256
	maxIncludeDepth = 8
)

// place is a position in a file.
type place struct {
	file string
	line int
}

// pair is one "Key=value" with its place.
type pair struct {
	key, value string
	place
}

// reader turns files into lines of pairs.
type reader struct {
	readFile func(string) ([]byte, error)
	faults   *Faults
	dirs     []string           // of the first file; relative includes start here
	cluster  string             // for %c in Include
	line     func(pairs []pair) // is called for every line that is not empty
	included int
	sum      io.Writer // gets every line that is not empty, without comments
}

func (r *reader) fault(at place, help, format string, args ...any) {
	r.faults.add(Fault{File: at.file, Line: at.line, Msg: fmt.Sprintf(format, args...), Help: help})
}

// read passes every line of a file, and of the files that it includes, to r.line. The error is that of opening this file.
func (r *reader) read(path string, depth int) error {
	data, err := r.readFile(path)
	if err != nil {
		return err
	}
	if len(data) > maxFileBytes {
		return fmt.Errorf("it has %d bytes, the limit is %d", len(data), maxFileBytes)
	}
	var logical strings.Builder
	start := place{file: path}
	number := 0
	for physical := range strings.Lines(string(data)) {
		number++
		if logical.Len() == 0 {
			start.line = number
		}
		text := strings.TrimRight(stripComment(strings.TrimRight(physical, "\r\n")), " \t")
		if more, ok := strings.CutSuffix(text, "\\"); ok {
			logical.WriteString(more)
			continue
		}
		logical.WriteString(text)
		r.logical(strings.TrimSpace(logical.String()), start, depth)
		logical.Reset()
	}
	r.logical(strings.TrimSpace(logical.String()), start, depth)
	return nil
}

// stripComment cuts s at the first '#' that is neither escaped nor quoted.
func stripComment(s string) string {
	quoted := false
	for i := range len(s) {
		switch s[i] {
		case '"':
			quoted = !quoted
		case '#':
			if i > 0 && s[i-1] == '\\' {
				continue
			}
			if !quoted || !strings.Contains(s[i:], `"`) {
				return s[:i]
			}
		}
	}
	return s
}

// logical handles one line after joining continuations.
func (r *reader) logical(text string, at place, depth int) {
	if text == "" {
		return
	}
	if len(text) > 8 && strings.EqualFold(text[:7], "include") && (text[7] == ' ' || text[7] == '\t') {
		r.include(strings.Trim(strings.TrimSpace(text[8:]), `"`), at, depth)
		return
	}
	_, _ = io.WriteString(r.sum, text+"\n")
	if pairs := r.pairs(text, at); len(pairs) > 0 {
		if strings.EqualFold(pairs[0].key, "ClusterName") {
			r.cluster = pairs[0].value
		}
		r.line(pairs)
	}
}

// include reads another file in place. Relative names start at the directory of slurm.conf, and %c is the cluster's name, as in
// slurm.conf(5), "INCLUDE MODIFIERS".
func (r *reader) include(name string, at place, depth int) {
	name = strings.ReplaceAll(name, "%c", r.cluster)
	names := []string{name}
	if !filepath.IsAbs(name) {
		names = nil
		for _, dir := range r.dirs {
			names = append(names, filepath.Join(dir, name))
		}
	}
	r.included++
	if depth >= maxIncludeDepth || r.included > maxIncludes {
		r.fault(at, "does a file include itself?", "more than %d files are included, or more than %d deep", maxIncludes, maxIncludeDepth)
		return
	}
	var first error
	for _, path := range names {
		err := r.read(path, depth+1)
		if err == nil {
			return
		}
		if first = cmp.Or(first, err); !errors.Is(err, fs.ErrNotExist) {
			first = err
			break
		}
	}
	r.fault(at, "relative names start at the directory of slurm.conf", "cannot include %s: %s", names[0], cause(first))
}

// cause returns the reason of an error of os without the path, which the caller prints.
func cause(err error) string {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// pairs splits `Key=value Key="a value"` and reports malformed text. Blanks may surround the '='; "Nodes= " is the only key that
// may be empty.
func (r *reader) pairs(text string, at place) []pair {
	var out []pair
	for text != "" {
		n := strings.IndexAny(text, "= \t")
		key, rest := text, ""
		if n >= 0 {
			key, rest = text[:n], strings.TrimLeft(text[n:], " \t")
		}
		value, isPair := strings.CutPrefix(rest, "=")
		if !isPair || key == "" || strings.ContainsFunc(key, notInKey) {
			r.fault(at, "write Key=value, and quotes around a value with blanks", "cannot read %.60q", text)
			return out
		}
		p := pair{key: key, place: at}
		if blank := value != "" && value[0] != '"' && strings.TrimLeft(value, " \t") != value; blank && strings.EqualFold(key, "Nodes") {
			out, text = append(out, p), strings.TrimLeft(value, " \t")
			continue
		}
		var why string
		if p.value, text, why = cutValue(strings.TrimLeft(value, " \t")); why != "" {
			r.fault(at, "", "%s: %s", key, why)
			return out
		}
		out = append(out, p)
	}
	return out
}

func notInKey(c rune) bool {
	return !(c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
}

// cutValue splits text after its first value; rest has no leading blanks. Parts of a value may be quoted: Reason="a b".
func cutValue(text string) (value, rest, why string) {
	var b strings.Builder
	quoted := false
	i := 0
	for ; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t'):
			return b.String(), strings.TrimLeft(text[i:], " \t"), ""
		case c < 0x20 || c == 0x7f:
			if c != '\t' {
				return "", "", fmt.Sprintf("the value has the control character %#02x", c)
			}
			b.WriteByte(' ')
		case c == '\\' && i+1 < len(text) && text[i+1] == '#':
			// escaped comment sign
		default:
			b.WriteByte(c)
		}
	}
	if quoted {
		return "", "", "the value has an opening quote without a closing one"
	}
	return b.String(), "", ""
}
