package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// phrases are turns of translated English: a word that each has, a pattern around it, and what to write instead. A blank in a pattern is
// any space, also a line's end with the mark of a comment. The word is there for speed: patterns are tried only near it.
//
// Vale, a checker of prose, was rejected: its module compiles fifteen parsers in C for this, and its newest version needs a module that
// the public proxy does not serve.
var phrases = []struct{ word, pattern, better string }{
	{"again", `again and again`, `"repeatedly" or "periodically"; of a caller: "polls", "retries"`},
	{"belong", `[Bb]elongs? into`, `"belongs in"`},
	{"there", `(?:that|which) there (?:is|are) not\b`, `"missing", "that does not exist"; of nodes and GPUs: "simulated"`},
	{"before", `\bof before\b`, `"from before", "earlier", "previous", "that predates"`},
	{"who", `\b(?:to|for|from|by|with) who (?:has|have|is|are|can|may|comes)\b`, `a noun: "to clients that have", "for users who are"`},
	{"of root's", `(?:folder|directory) of root's`, `"root-owned directory"`},
	{"etended", `[Pp]retended (?:GPU|node)`, `"simulated GPU", "simulated node"`},
}

var phrasePatterns = sync.OnceValue(func() (patterns []*regexp.Regexp) {
	for _, p := range phrases {
		patterns = append(patterns, regexp.MustCompile(strings.ReplaceAll(p.pattern, " ", `(?:[ \t]+|[ \t]*\n[ \t]*(?://|#)?[ \t]*)`)))
	}
	return patterns
})

// find tells of each phrase in a text, where it begins and ends.
func find(text string, found func(phrase, begin, end int)) {
	const near = 60
	for i, p := range phrases {
		last := -1
		for from := 0; ; {
			at := strings.Index(text[from:], p.word)
			if at < 0 {
				break
			}
			at += from
			from = at + len(p.word)
			start := max(0, at-near)
			for _, m := range phrasePatterns()[i].FindAllStringIndex(text[start:min(len(text), at+near)], -1) {
				if start+m[0] > last {
					last = start + m[0]
					found(i, last, start+m[1])
				}
			}
		}
	}
}

// TestLanguage: nobody has to read a sentence twice because of a phrase that has a usual word. Texts that tools parse are in testdata.
func TestLanguage(t *testing.T) {
	read := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if slices.Contains([]string{".git", "testdata", "bin", "dist"}, e.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !written(path) {
			return nil
		}
		text, err := os.ReadFile(path)
		read++
		find(string(text), func(phrase, at, end int) {
			t.Errorf("%s:%d: %q: write %s", path, 1+strings.Count(string(text[:at]), "\n"), text[at:end], phrases[phrase].better)
		})
		return err
	})
	if err != nil || read < 500 {
		t.Fatalf("%d files, %v", read, err)
	}
}

// TestPhrases: each pattern finds its phrase, also across the end of a line of a comment, and leaves what is like it alone.
func TestPhrases(t *testing.T) {
	for text, want := range map[string]int{
		"asks again and\n\t// again": 0, "it belongs into a file": 1, "a node that there is not": 2, "for which there are not any": 2,
		"the state of before": 3, "sent to who has a token": 4, "in a directory of root's": 5, "Pretended GPUs": 6,
		"again and again and again": 0, "that there is nothing": -1, "before and after": -1, "tell who has it": -1, "the root's child": -1,
	} {
		found := -1
		find(text, func(phrase, _, _ int) { found = phrase })
		if found != want {
			t.Errorf("%q: phrase %d, want %d", text, found, want)
		}
	}
}

// written says whether people write a file.
func written(path string) bool {
	if strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go") || path == "cmd/rules/language_test.go" {
		return false
	}
	return slices.Contains([]string{".go", ".md", ".yml", ".yaml", ".proto"}, filepath.Ext(path))
}
