package sluice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sluice-hpc/sluice/"

// rule says what the packages below a folder may import of this module. Folders end in "/" where all below them is meant.
type rule struct {
	in    string   // packages in this folder and below
	may   []string // nothing of ours besides these, and what is below in
	never []string // or: anything but these
	but   []string // packages in the folder that are free: they put both sides together to test them
}

// importRules are who may import whom. A package must keep to every rule that its folder matches.
var importRules = []rule{
	{in: "conf/hostlist", may: []string{}},
	{in: "conf/timespec", may: []string{}},
	{in: "conf/tres", may: []string{}},
	{in: "conf/jobid", may: []string{"conf/hostlist"}},
	{in: "conf/filename", may: []string{}},
	{in: "conf/accounts", may: []string{}},
	{in: "conf", may: []string{}},
	{in: "sched", may: []string{"conf/"}},
	{in: "proto", may: []string{}},
	{in: "ctld/state", never: []string{"ctld/admit", "ctld/reactor", "ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/admit", never: []string{"ctld/reactor", "ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/reactor", never: []string{"ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/acct", never: []string{"ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/loop", never: []string{"ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld", never: []string{"noded/", "client/"}, but: []string{"ctld/simtest", "ctld/crashtest"}},
	{in: "noded", never: []string{"ctld/", "client/", "sched/"}},
	{in: "client", never: []string{"ctld/", "noded/", "sched/"}},
}

func TestImportRules(t *testing.T) {
	for pkg, imports := range packages(t) {
		for _, r := range importRules {
			if !below(pkg, r.in) || slices.ContainsFunc(r.but, func(folder string) bool { return below(pkg, folder) }) {
				continue
			}
			for _, imp := range imports {
				if !r.allows(imp) {
					t.Errorf("%s imports %s, which nothing in %s may", pkg, imp, r.in)
				}
			}
		}
	}
}

func (r rule) allows(imp string) bool {
	in := func(folder string) bool {
		return imp == strings.TrimSuffix(folder, "/") || strings.HasSuffix(folder, "/") && below(imp, strings.TrimSuffix(folder, "/"))
	}
	if r.never != nil {
		return !slices.ContainsFunc(r.never, in)
	}
	return below(imp, r.in) || slices.ContainsFunc(r.may, in)
}

func below(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

// packages gives what each package of this module imports of this module, without its tests.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		var ours []string
		words := strings.Fields(line)
		for _, imp := range words[1:] {
			if name, ok := strings.CutPrefix(imp, module); ok {
				ours = append(ours, name)
			}
		}
		all[strings.TrimPrefix(words[0], module)] = ours
	}
	if len(all) < 20 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// pure are the folders where decisions are made: no clock, no chance, no goroutine.
var pure = []string{"sched", "ctld/state", "ctld/reactor", "ctld/admit", "ctld/crontab", "noded/agent"}

// impure lists what these packages may not call, by package; nil: nothing of it.
var impure = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"math/rand":    nil,
	"math/rand/v2": {"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64", "Uint64N", "N", "Float32", "Float64", "Perm", "Shuffle", "NormFloat64", "ExpFloat64"},
	"crypto/rand":  nil,
}

func TestPurePackages(t *testing.T) {
	for _, dir := range pure {
		eachFile(t, dir, func(path string, fset *token.FileSet, f *ast.File) {
			names := map[string]string{} // of a package in this file: its path
			for _, imp := range f.Imports {
				p, _ := strconv.Unquote(imp.Path.Value)
				name := filepath.Base(strings.TrimSuffix(p, "/v2"))
				if imp.Name != nil {
					name = imp.Name.Name
				}
				names[name] = p
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
				case *ast.SelectorExpr:
					x, ok := n.X.(*ast.Ident)
					if !ok {
						break
					}
					calls, listed := impure[names[x.Name]]
					if listed && (calls == nil || slices.Contains(calls, n.Sel.Name)) {
						t.Errorf("%s uses %s.%s", fset.Position(n.Pos()), x.Name, n.Sel.Name)
					}
				}
				return true
			})
		})
	}
}

// eachFile parses the Go files below a folder, without tests.
func eachFile(t *testing.T, dir string, visit func(path string, fset *token.FileSet, f *ast.File)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if dir == "sched" && strings.HasPrefix(path, "sched/sim/") {
			return nil // the simulator measures its own speed
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err == nil {
			seen++
			visit(path, fset, f)
		}
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("%s: %d files, %v", dir, seen, err)
	}
}

// TestCommandsStayLight: a command lives for two milliseconds, and all that it is linked with is set up before it begins.
func TestCommandsStayLight(t *testing.T) {
	for target, heavy := range map[string][]string{
		"./cmd/sluice": {"google.golang.org", "github.com/containerd/ttrpc", "github.com/urfave", "text/template", "net/http", "crypto/tls", module + "proto/sluice"},
		// What the commands themselves are made of; the rest of the program serves up, down, conf and sim.
		"./client/sbatch": {"net", "crypto/sha256", "encoding/json", "regexp", "text/template", "github.com/urfave", module + "conf"},
	} {
		out, err := exec.Command("go", "list", "-tags", "urfave_cli_no_docs", "-deps", target).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, dep := range strings.Fields(string(out)) {
			leaf := strings.HasPrefix(dep, module+"conf/") // the grammars
			if slices.ContainsFunc(heavy, func(h string) bool { return below(dep, h) }) && !leaf {
				t.Errorf("%s is linked with %s; go list -deps says by way of what", target, dep)
			}
		}
	}
}

// TestPackageNames: a package is named after what it is about.
func TestPackageNames(t *testing.T) {
	for pkg := range packages(t) {
		for _, word := range strings.Split(pkg, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "manager", "models", "misc"}, word) {
				t.Errorf("%s says nothing about what is in it", pkg)
			}
		}
	}
}

// maxFileLines bounds source files that people read.
const maxFileLines = 650

func TestFileSizes(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if n := strings.Count(string(b), "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d: take it apart", path, n, maxFileLines)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
