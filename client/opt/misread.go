package opt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Misread guesses the intention behind a command line that is valid but probably not meant that way: the first long option that
// lacks a hyphen, or the first dash inserted by a word processor; "" if there is none. words are the arguments that are not
// options.
func Misread(names []Name, hits []Hit, words []string) string {
	for i := range hits {
		if hits[i].Misread != "" {
			return hits[i].Misread
		}
	}
	for _, w := range words {
		if hint := pastedDash(names, w); hint != "" {
			return hint
		}
	}
	return ""
}

// oneHyphen recognises "-time=10", which getopt reads as "-t ime=10". The name must be complete, or an abbreviation followed by an
// equals sign.
func oneHyphen(names []Name, word string) string {
	name, value, given := strings.Cut(word[1:], "=")
	if len(name) < 3 {
		return ""
	}
	index, err := find(names, name, name)
	if err != nil || names[index].Long != name && !given {
		return ""
	}
	meant := "--" + names[index].Long
	if given {
		meant += "=" + value
	}
	if byLetter(names, word[1]) < 0 {
		return fmt.Sprintf("did you mean %s, with two hyphens?", Quoted(meant))
	}
	return fmt.Sprintf("%s means -%s %s; did you mean %s, with two hyphens?", Quoted(word), word[1:2], Quoted(word[2:]), Quoted(meant))
}

// dashes are characters that look like a hyphen, with their Unicode names.
var dashes = map[rune]string{
	0x2010: "hyphen", 0x2011: "non-breaking hyphen", 0x2012: "figure dash", 0x2013: "en dash", 0x2014: "em dash", 0x2015: "horizontal bar",
	0x2212: "minus sign", 0xfe58: "small em dash", 0xfe63: "small hyphen-minus", 0xff0d: "fullwidth hyphen-minus",
}

// pastedDash recognises hyphens that a word processor has replaced by one character: "–mem=1G".
func pastedDash(names []Name, word string) string {
	first, size := utf8.DecodeRuneInString(strings.TrimLeft(word, "-"))
	name, known := dashes[first]
	if !known || len(word)-len(strings.TrimLeft(word, "-")) > 1 {
		return ""
	}
	rest := strings.TrimLeftFunc(strings.TrimLeft(word, "-")[size:], func(r rune) bool { return r == '-' || dashes[r] != "" })
	meant := "-" + rest
	if long, _, _ := strings.Cut(rest, "="); len(long) > 1 {
		if _, err := find(names, long, long); err == nil {
			meant = "-" + meant
		}
	}
	return fmt.Sprintf("%s begins with %s (U+%04X), not with a hyphen; type %s", Quoted(word), article(name), first, Quoted(meant))
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
