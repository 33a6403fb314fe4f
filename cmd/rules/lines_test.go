package rules

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns bounds lines that people read; a tab is four columns wide.
const maxColumns = 140

// longLines is how many longer ones there still are, by kind of file; "" is scripts. The numbers only sink.
var longLines = map[string]int{".go": 0, ".md": 0, ".proto": 0, "": 6}

// TestLineLength counts the lines that are too long; -v lists them. Left out are lines that cannot be broken: within a Go text
// between backquotes, with a Go text that is most of the line, in tables and code of Markdown, and those that nobody has typed.
func TestLineLength(t *testing.T) {
	found := map[string][]string{}
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
		kind, typed := kindOf(path)
		if !typed || !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found[kind] = append(found[kind], tooLong(path, kind, string(text))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind, allowed := range longLines {
		if n := len(found[kind]); n > allowed {
			t.Errorf("%d lines of %q files are longer than %d columns, %d are allowed: break yours (-v lists them all)", n, kind,
				maxColumns, allowed)
		}
		if testing.Verbose() {
			t.Logf("%d in %q files\n%s", len(found[kind]), kind, strings.Join(found[kind], "\n"))
		}
	}
}

// kindOf says which number a file counts for, and whether somebody types it.
func kindOf(path string) (kind string, typed bool) {
	switch ext := filepath.Ext(path); {
	case strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go"):
		return "", false
	case ext == ".go" || ext == ".md" || ext == ".proto":
		return ext, true
	case ext == ".sh" || path == "Makefile" || strings.HasPrefix(path, ".ci/") && ext == "":
		return "", true
	}
	return "", false
}

// tooLong gives the places of the lines that are.
func tooLong(path, kind, text string) (places []string) {
	fixed := map[int]bool{}
	switch kind {
	case ".go":
		fixed = rawStrings(text)
	case ".md":
		fixed = tablesAndCode(text)
	}
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); n > maxColumns && !fixed[i+1] {
			places = append(places, fmt.Sprintf("%s:%d: %d", path, i+1, n))
		}
	}
	return places
}

// rawStrings finds the lines that are part of a text between backquotes over several lines, or have a text of two thirds of their length.
func rawStrings(text string) map[int]bool {
	lines := map[int]bool{}
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		n := strings.Count(literal, "\n")
		if tok == token.STRING && (n > 0 || utf8.RuneCountInString(literal) > maxColumns*2/3) {
			for i := range n + 1 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}

// tablesAndCode finds the lines of Markdown that end where their row ends or where their program wants it.
func tablesAndCode(text string) map[int]bool {
	lines := map[int]bool{}
	code := false
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		code = code != fence
		lines[i+1] = code || fence || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ")
	}
	return lines
}
