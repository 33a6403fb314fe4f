package terminal

import (
	"fmt"
	"unicode/utf8"
)

// Escape makes a text from a record safe for a line of output: control characters, broken UTF-8 and marks that change the direction
// of writing become \n, \t, \x1b, \u202e and the like. All other characters are unchanged, including blanks and backslashes,
// because tools compare names byte for byte.
func Escape(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return string(EscapeTail([]byte(s), 0))
		}
	}
	return s
}

// EscapeTail escapes b[start:] in place.
func EscapeTail(b []byte, start int) []byte {
	for i := start; i < len(b); i++ {
		if b[i] < ' ' || b[i] >= 0x7f {
			tail := string(b[i:])
			return appendEscaped(b[:i], tail)
		}
	}
	return b
}

func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r < ' ' || r == 0x7f:
			b = fmt.Appendf(b, `\x%02x`, r)
		case hidden(r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, s[i:i+size]...)
		}
		i += size
	}
	return b
}

// hidden reports whether a rune moves, hides or reorders adjacent text (Unicode TR 9 and TR 36); this includes C1 controls.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f, r == 0xad, r == 0x61c, r == 0x180e:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r == 0xfeff, r >= 0xfff9 && r <= 0xfffb:
		return true
	}
	return false
}
