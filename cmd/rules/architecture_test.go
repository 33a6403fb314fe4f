package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```")
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	braces     = regexp.MustCompile(`^(.*)\{(.*)\}(.*)$`)
	identifier = regexp.MustCompile(`^([a-z]\w*)(\.[A-Za-z]\w*)+$`)
	field      = regexp.MustCompile(`^([A-Z]\w*)\.([a-z]\w*)$`)
)

// TestArchitecture: each package, file, identifier and field of a message that ARCHITECTURE.md names exists, and each package is named.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	code, messages, found := declared(t), protos(t), map[string]bool{}
	paths, identifiers, fields := 0, 0, 0
	for _, word := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		for _, name := range expand(word[1]) {
			top, _, _ := strings.Cut(name, "/")
			switch parts := strings.Split(name, "."); {
			case slices.Contains(topLevel, top) && !strings.Contains(name, " "):
				paths++
				if _, err := os.Stat(name); err != nil {
					t.Errorf("%s: there is no such file", name)
				}
				found[name] = true
			case slices.Contains([]string{"conf", "db", "md"}, parts[len(parts)-1]): // a file elsewhere
			case identifier.MatchString(name) && code[parts[0]]:
				identifiers++
				if !code[name] {
					t.Errorf("%s: package %s declares no such name", name, parts[0])
				}
			case field.MatchString(name):
				fields++
				if body := messages[parts[0]]; !strings.Contains(body, " "+parts[1]+" = ") {
					t.Errorf("%s: the message has no such field", name)
				}
			}
		}
	}
	for pkg := range packages(t) {
		if !found[pkg] {
			t.Errorf("package %s has no row", pkg)
		}
	}
	if paths < 100 || identifiers < 40 || fields == 0 {
		t.Errorf("only %d paths, %d identifiers and %d fields were found", paths, identifiers, fields)
	}
}

// expand resolves "a/{b,c}".
func expand(name string) (all []string) {
	m := braces.FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	for part := range strings.SplitSeq(m[2], ",") {
		all = append(all, m[1]+part+m[3])
	}
	return all
}

// declared has the packages of this module by name, and what they declare: "loop", "loop.Loop", "loop.Loop.Do".
func declared(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, dir := range topLevel {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			generated := strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go")
			if err != nil || generated || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			names[f.Name.Name] = true
			for _, d := range f.Decls {
				for _, name := range namesOf(d) {
					names[f.Name.Name+"."+name] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			recv := d.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			if id, ok := recv.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		return []string{name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// protos has the text of each message by its name.
func protos(t *testing.T) map[string]string {
	files, err := filepath.Glob("proto/sluice/*/*.proto")
	more, _ := filepath.Glob("proto/sluice/*/*/*.proto")
	messages := map[string]string{}
	for _, file := range append(files, more...) {
		text, rerr := os.ReadFile(file)
		if err = rerr; err != nil {
			break
		}
		for _, m := range regexp.MustCompile(`(?ms)^message (\w+) \{(.*?)^\}`).FindAllStringSubmatch(string(text), -1) {
			messages[m[1]] = m[2]
		}
	}
	if err != nil || len(messages) == 0 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	return messages
}
