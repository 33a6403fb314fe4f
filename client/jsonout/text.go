package jsonout

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendJSON writes a text in quotes, as Slurm's serializer does: "/" is escaped, UTF-8 is not. Invisible characters (control
// characters, marks of direction) and invalid UTF-8 are replaced.
func appendJSON(b []byte, s string) []byte { return appendQuoted(b, s, '/') }

// appendQuoted also escapes the byte also, unless it is 0.
func appendQuoted(b []byte, s string, also byte) []byte {
	b = append(b, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' && (c != also || c == 0) {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if c >= 0x80 && !(r == utf8.RuneError && size == 1) && !hidden(r) {
			i += size
			continue
		}
		b = append(b, s[plain:i]...)
		i += size
		plain = i
		b = appendEscape(b, r, size)
	}
	return append(append(b, s[plain:]...), '"')
}

func appendEscape(b []byte, r rune, size int) []byte {
	switch r {
	case '"', '\\', '/':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, `\n`...)
	case '\t':
		return append(b, `\t`...)
	case '\r':
		return append(b, `\r`...)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case utf8.RuneError:
		if size == 1 {
			return append(b, "\ufffd"...)
		}
	}
	if r > 0xffff {
		return utf8.AppendRune(b, r)
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// hidden reports whether a rune moves, hides or reorders adjacent text; this includes C1 controls and line separators.
func hidden(r rune) bool {
	switch {
	case r >= 0x7f && r <= 0x9f, r == 0xad, r == 0x61c, r == 0x180e:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r == 0xfeff, r >= 0xfff9 && r <= 0xfffb:
		return true
	}
	return false
}

// appendYAML writes a text plain if YAML 1.1 reads it back unchanged, otherwise in double quotes, where its escapes are those of
// JSON.
func appendYAML(b []byte, s string) []byte {
	if plainYAML(s) {
		return append(b, s...)
	}
	return appendQuoted(b, s, 0) // YAML 1.1 has no "\/"
}

// plainYAML is stricter than necessary: letters, digits and a few marks, beginning with a letter or a slash, and not a word with a
// special meaning.
func plainYAML(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	switch s {
	case "y", "Y", "n", "N", "yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false", "False", "FALSE", "on", "On", "ON",
		"off", "Off", "OFF", "null", "Null", "NULL":
		return false
	}
	if c := s[0]; !letter(c) && c != '/' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && (c < '0' || c > '9') && c != '/' && c != '.' && c != '-' && c != '+' {
			return false
		}
	}
	_, err := strconv.ParseFloat(s, 64) // "inf", "nan", "0x1p4"
	return err != nil
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
