package accounts

import (
	"fmt"
	"strings"
	"unicode"
)

// A file of accounts and users, as sacctmgr dump writes it and sacctmgr load reads it: a line for each record, whose settings follow after
// colons. Values may stand in quotes of either kind.
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

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("line %d: %s", e.Number, e.Why) }

// fileKinds are the words that begin a line. A project is an account.
var fileKinds = map[string]string{"cluster": "Cluster", "parent": "Parent", "account": "Account", "project": "Account", "user": "User"}

// ParseFile takes a file apart, up to the first line that cannot be read. What the settings mean is not looked at.
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
				return lines, &FileError{n, fmt.Sprintf("%.40q is no NAME=VALUE", p), raw}
			}
			l.Options = append(l.Options, FileOption{strings.TrimSpace(key), unquoted(value)})
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// splitLine cuts a line at the colons that are not in quotes, and takes a comment away.
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

// unquoted is a value without blanks and quotes around it.
func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// Append writes the line as Slurm does: texts and names in quotes, numbers without.
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

// Quoted is a text in quotes. Texts that are stored have none, see Plain.
func Quoted(s string) string { return "'" + s + "'" }

// Plain is a text without quotes, as Slurm stores it: its files could not hold them.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\'' || r == '"' {
			return '`'
		}
		return r
	}, strings.TrimFunc(s, unicode.IsSpace))
}
