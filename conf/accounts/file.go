package accounts

import (
	"fmt"
	"strings"
	"unicode"
)

// A file of accounts and users, as sacctmgr dump writes it and sacctmgr load reads it: one record per line, its settings separated
// by colons. Values may be in single or double quotes.
//
//	Cluster - 'main':GrpJobs=1000
//	Parent - 'root'
//	Account - 'vision':Description='computer vision':MaxJobs=20
//	Parent - 'vision'
//	User - 'alice':DefaultAccount='vision':Fairshare=2

// FileLine is a line of such a file.
type FileLine struct {
	Number  int
	Kind    string // Cluster, Parent, Account or User
	Name    string
	Options []FileOption
}

// FileOption is a setting of a line.
type FileOption struct{ Key, Value string }

// FileError is a line that cannot be read.
type FileError struct {
	Number int
	Why    string
	Text   string // of the line
}

func (e *FileError) Error() string { return fmt.Sprintf("line %d: %s", e.Number, e.Why) }

// fileKinds are the keywords that start a line. A project is an account.
var fileKinds = map[string]string{"cluster": "Cluster", "parent": "Parent", "account": "Account", "project": "Account", "user": "User"}

// ParseFile splits a file into lines and settings and stops at the first line that it cannot read. It does not interpret the
// settings.
func ParseFile(text string) (lines []FileLine, err error) {
	n := 0
	for raw := range strings.Lines(text) {
		n++
		raw = strings.TrimRight(raw, "\r\n")
		parts, why := splitLine(raw)
		if why != "" {
			return lines, &FileError{n, why, raw}
		}
		if len(parts) == 0 {
			continue
		}
		word, name, found := strings.Cut(parts[0], "-")
		kind := fileKinds[strings.ToLower(strings.TrimSpace(word))]
		if !found || kind == "" {
			return lines, &FileError{n, "a line begins with \"Cluster - \", \"Parent - \", \"Account - \" or \"User - \"", raw}
		}
		l := FileLine{Number: n, Kind: kind, Name: unquoted(name)}
		if l.Name == "" {
			return lines, &FileError{n, "there is no name", raw}
		}
		for _, p := range parts[1:] {
			key, value, found := strings.Cut(p, "=")
			if !found || strings.TrimSpace(key) == "" {
				return lines, &FileError{n, fmt.Sprintf("%.40q is not NAME=VALUE", p), raw}
			}
			l.Options = append(l.Options, FileOption{strings.TrimSpace(key), unquoted(value)})
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// splitLine splits a line at the colons outside quotes and removes comments.
func splitLine(line string) (parts []string, why string) {
	var quote rune
	from, end := 0, len(line)
loop:
	for i, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '#':
			end = i
			break loop
		case r == ':':
			parts, from = append(parts, line[from:i]), i+1
		}
	}
	if quote != 0 {
		return nil, fmt.Sprintf("a quote (%c) is not closed", quote)
	}
	if last := line[from:end]; len(parts) > 0 || strings.TrimSpace(last) != "" {
		parts = append(parts, last)
	}
	return parts, ""
}

// unquoted removes blanks and quotes around a value.
func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// Append writes the line as Slurm does: strings and names in quotes, numbers without.
func (l *FileLine) Append(b []byte) []byte {
	b = append(b, l.Kind+" - "+Quoted(l.Name)...)
	for _, o := range l.Options {
		b = append(b, ":"+o.Key+"="...)
		if s := Find(Assoc, o.Key); s != nil && s.Numeric() {
			b = append(b, o.Value...)
		} else {
			b = append(b, Quoted(o.Value)...)
		}
	}
	return append(b, '\n')
}

// Quoted puts a text in quotes. Stored texts contain none: see Plain.
func Quoted(s string) string { return "'" + s + "'" }

// Plain trims a text and replaces quotes by backquotes, as Slurm does before it stores it: its files cannot represent quotes.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\'' || r == '"' {
			return '`'
		}
		return r
	}, strings.TrimFunc(s, unicode.IsSpace))
}
