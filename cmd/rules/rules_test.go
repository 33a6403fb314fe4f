package rules

import (
	"fmt"
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
	{in: "conf/fairtree", may: []string{}},
	{in: "conf/accounts", may: []string{"conf/timespec", "conf/tres"}},
	{in: "conf/jobid", may: []string{"conf/hostlist"}},
	{in: "conf/filename", may: []string{}},
	{in: "conf", may: []string{"internal/"}},
	// What several programs share, and the test beds, which put all of them together.
	{in: "internal", may: []string{"internal/"}, but: []string{"internal/test"}},
	{in: "sched", may: []string{"conf/"}},
	// Each of these uses those before it; pass and explain know nothing of each other.
	{in: "sched/reason", may: []string{}},
	{in: "sched/record", may: []string{"sched/reason"}},
	{in: "sched/sizing", may: []string{"sched/record"}},
	{in: "sched/priority", may: []string{"sched/record", "sched/sizing"}},
	{in: "sched/node", may: []string{"sched/record", "sched/profile", "sched/sizing"}},
	{in: "sched/index", may: []string{"sched/reason", "sched/record", "sched/profile", "sched/node"}},
	{in: "sched/placement", may: []string{"conf/", "sched/reason", "sched/record", "sched/fit", "sched/node", "sched/index",
		"sched/sizing"}},
	{in: "sched/queue", may: []string{"sched/reason", "sched/record", "sched/priority", "sched/node", "sched/index", "sched/placement",
		"sched/sizing"}},
	{in: "sched/pass", may: []string{"sched/reason", "sched/record", "sched/node", "sched/index", "sched/placement", "sched/queue",
		"sched/sizing"}},
	{in: "sched/explain", may: []string{"conf/", "sched/reason", "sched/record", "sched/node", "sched/index", "sched/placement",
		"sched/queue",
		"sched/sizing"}},
	// The controller speaks in records, sizes and priorities; what a Scheduler is made of is its own.
	{in: "ctld", never: []string{"sched/node", "sched/index", "sched/queue", "sched/pass"}},
	{in: "proto", may: []string{}},
	{in: "ctld/state", never: []string{"ctld/admit", "ctld/reactor", "ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/convert", never: []string{"ctld/admit", "ctld/reactor", "ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/feasible", may: []string{"conf/", "ctld/convert", "ctld/state", "proto/", "sched/"}},
	{in: "ctld/steps", may: []string{"conf/", "ctld/convert", "ctld/state", "proto/", "sched/record", "sched/sizing"}},
	{in: "ctld/admit", never: []string{"ctld/reactor", "ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/limit", may: []string{"conf/", "ctld/convert", "ctld/state", "proto/", "sched/record", "sched/sizing"}},
	{in: "ctld/reactor", never: []string{"ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/reactor/accounts", may: []string{"conf/", "ctld/admit", "ctld/state", "proto/"}},
	{in: "ctld/reactor/resv", may: []string{"conf/", "ctld/admit", "ctld/state", "proto/"}},
	{in: "ctld/acct", never: []string{"ctld/loop", "ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	{in: "ctld/loop", never: []string{"ctld/planner", "ctld/dispatch", "ctld/rpc"}},
	// What the services stand on knows nothing of them.
	{in: "ctld/turns", may: []string{}},
	{in: "ctld/frames", may: []string{}},
	{in: "ctld/nodeport", may: []string{"internal/"}},
	{in: "ctld/explain", may: []string{"conf/", "ctld/feasible", "ctld/limit", "ctld/state", "proto/", "sched/record", "sched/explain"}},
	{in: "ctld/live", may: []string{"ctld/reactor", "ctld/state", "proto/"}},
	{in: "ctld/metrics", may: []string{"conf/", "internal/", "ctld/state", "proto/"}},
	{in: "ctld", never: []string{"noded/", "client/"}},
	{in: "noded", never: []string{"ctld/", "client/", "sched/"}},
	// The half of the node daemon with root's rights has nothing of the half that talks to the network.
	{in: "noded/root", never: []string{"noded/link"}},
	{in: "noded/lifecycle", may: []string{"internal/failpoint", "noded/agent", "noded/bundle", "noded/privsep", "noded/taskenv", "proto/"}},
	{in: "noded/metrics", may: []string{"conf/", "internal/", "proto/"}},
	{in: "noded/privsep", may: []string{"conf/", "internal/", "proto/"}},
	{in: "noded/policy", may: []string{"conf/", "internal/", "proto/"}},
	{in: "client", never: []string{"ctld/", "noded/", "sched/"}},
	// A command stands alone; what two of them need is in command or view.
	{in: "client/command", may: []string{"client", "client/batchscript", "client/joboptions", "client/msg", "client/opt", "client/terminal",
		"client/wire", "conf/", "internal/"}},
	{in: "client/view", never: commandsBut()},
	{in: "client/format", may: []string{"client/jsonout", "client/msg", "client/terminal", "conf/", "internal/", "proto/"},
		but: []string{"client/format/gen"}},
}

// commands are the packages of client that are a command each.
var commands = []string{"sbatch", "scancel", "squeue", "sinfo", "scrontab", "sdiag", "seff", "sstat", "sacctmgr", "sacct", "sprio",
	"scontrol", "explain", "gpus", "report", "budget", "salloc", "sattach", "sbcast", "srun", "enrol", "adopt", "confcheck", "sandbox"}

// alsoImported are the commands that another one is made with: a line of a crontab is a submission, and `sluice conf check` finds the
// controller's program as `sluice up` does.
var alsoImported = map[string]string{"scrontab": "sbatch", "confcheck": "sandbox"}

// heavy are the commands that may be linked with more: one prints JSON of its own, three are in a program of their own, with TLS, and the
// others read slurm.conf or talk to nobody else's process.
var heavy = []string{"gpus", "srun", "sattach", "sbcast", "adopt", "confcheck", "sandbox"}

// commandsBut are the folders of all commands but some.
func commandsBut(some ...string) (folders []string) {
	for _, name := range commands {
		if !slices.Contains(some, name) {
			folders = append(folders, "client/"+name)
		}
	}
	return folders
}

// TestMain runs the tests in the module's folder: the rules speak of paths from there.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestImportRules(t *testing.T) {
	rules := slices.Clone(importRules)
	for _, name := range commands {
		rules = append(rules, rule{in: "client/" + name, never: commandsBut(name, alsoImported[name])})
	}
	for pkg, imports := range packages(t) {
		for _, r := range rules {
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

// testSupport are packages that only tests import: they are linked with package testing.
var testSupport = []string{"internal/test/fieldtest", "internal/test/leaktest", "internal/test/daemontest", "internal/test/hosttest",
	"internal/test/boottest", "internal/test/output", "noded/sruntest",
	"noded/container/containertest"}

func TestTestSupportStaysOutOfPrograms(t *testing.T) {
	for pkg, imports := range packages(t) {
		if slices.Contains(testSupport, pkg) {
			continue
		}
		for _, imp := range imports {
			if slices.Contains(testSupport, imp) {
				t.Errorf("%s imports %s outside of its tests", pkg, imp)
			}
		}
	}
}

// topLevel are the folders at the top of the module; those of tools begin with a dot.
var topLevel = []string{"client", "cmd", "conf", "ctld", "deploy", "docs", "examples", "internal", "noded", "proto", "sched"}

func TestTopLevelFolders(t *testing.T) {
	for pkg := range packages(t) {
		if top, _, _ := strings.Cut(pkg, "/"); !slices.Contains(topLevel, top) {
			t.Errorf("package %s: there is no folder %s at the top; CONTRIBUTING.md says what belongs where", pkg, top)
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

// pure are the folders where decisions are made: no clock, no chance, no goroutine, no time zone of the machine.
var pure = []string{"sched", "ctld/state", "ctld/reactor", "ctld/convert", "ctld/feasible", "ctld/admit", "ctld/limit",
	"ctld/steps", "ctld/explain",
	"ctld/crontab", "noded/agent", "noded/lifecycle"}

// impure lists what these packages may not call, by package; nil: nothing of it.
var impure = map[string][]string{
	"time":      {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
	"math/rand": nil,
	"math/rand/v2": {"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64", "Uint64N", "N", "Float32",
		"Float64", "Perm", "Shuffle", "NormFloat64", "ExpFloat64"},
	"crypto/rand":             nil,
	module + "internal/clock": nil,
}

func TestPurePackages(t *testing.T) {
	for _, dir := range pure {
		eachFile(t, dir, func(_ string, fset *token.FileSet, f *ast.File) {
			for _, use := range impurities(f) {
				t.Errorf("%s %s", fset.Position(use.at), use.what)
			}
		})
	}
}

type impurity struct {
	at   token.Pos
	what string
}

// impurities lists what a file of a pure package must not have. A moment that time.Unix makes is in the zone of the machine, so it is put
// into another at once.
func impurities(f *ast.File) (list []impurity) {
	names := map[string]string{} // of a package in this file: its path
	for _, imp := range f.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		name := filepath.Base(strings.TrimSuffix(p, "/v2"))
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = p
	}
	found := func(n ast.Node, format string, args ...any) {
		list = append(list, impurity{n.Pos(), fmt.Sprintf(format, args...)})
	}
	zoned := map[ast.Expr]bool{} // what is put into a zone
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found(n, "starts a goroutine")
		case *ast.CallExpr:
			call, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			x, _ := call.X.(*ast.Ident)
			switch {
			case call.Sel.Name == "Local" && len(n.Args) == 0:
				found(n, "uses the time zone of the machine")
			case x != nil && names[x.Name] == "time" && strings.HasPrefix(call.Sel.Name, "Unix") && !zoned[n]:
				found(n, "uses time.%s without .In(zone) or .UTC()", call.Sel.Name)
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "In" || n.Sel.Name == "UTC" {
				zoned[n.X] = true
			}
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			calls, listed := impure[names[x.Name]]
			if listed && (calls == nil || slices.Contains(calls, n.Sel.Name)) {
				found(n, "uses %s.%s", x.Name, n.Sel.Name)
			}
		}
		return true
	})
	return list
}

// TestImpurities: the rule above finds each of these lines, and nothing in the last ones.
func TestImpurities(t *testing.T) {
	const head = "package p\nimport (\"time\"; \"math/rand\")\nfunc f(now time.Time, zone *time.Location) {\n"
	for line, want := range map[string]int{
		"go f(now, zone)": 1, "_ = time.Now()": 1, "_ = rand.Int()": 1, "_ = now.In(time.Local)": 1, "_ = now.Local()": 1,
		`_, _ = time.ParseInLocation("15", "9", time.Local)`: 1, `zone, _ = time.LoadLocation("Asia/Tokyo")`: 1,
		"_ = time.Unix(0, 1).Weekday()": 1, "now = time.UnixMilli(1)": 1,
		"_ = time.Unix(0, 1).In(zone)": 0, "_ = time.UnixMilli(1).UTC()": 0, `_, _ = time.ParseInLocation("15", "9", zone)`: 0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", head+line+"\n}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := impurities(f); len(got) != want {
			t.Errorf("%s: %v, want %d", line, got, want)
		}
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
	targets := map[string][]string{
		"./cmd/sluice": {"google.golang.org", "github.com/containerd/ttrpc", "github.com/urfave", "text/template", "net/http",
			"crypto/tls", module + "proto/sluice"},
	}
	for _, name := range commands { // the rest of the program serves up, down, conf and sim
		if !slices.Contains(heavy, name) {
			targets["./client/"+name] = []string{"net", "crypto/sha256", "encoding/json", "regexp", "text/template", "github.com/urfave",
				module + "conf"}
		}
	}
	targets["./client/sbatch"] = append(targets["./client/sbatch"], module+"client/format", module+"client/view")
	for target, unwanted := range targets {
		out, err := exec.Command("go", "list", "-tags", "urfave_cli_no_docs", "-deps", target).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, dep := range strings.Fields(string(out)) {
			leaf := strings.HasPrefix(dep, module+"conf/") // the grammars
			if slices.ContainsFunc(unwanted, func(h string) bool { return below(dep, h) }) && !leaf {
				t.Errorf("%s is linked with %s; go list -deps says by way of what", target, dep)
			}
		}
	}
}

// importNames are packages that have one name in every file that imports them; "" is the package's own.
var importNames = map[string]string{
	module + "proto/sluice/v1": "pb",
	module + "client/msg":      "",
}

func TestImportNames(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			want, listed := importNames[p]
			got := ""
			if imp.Name != nil {
				got = imp.Name.Name
			}
			if listed && got != want {
				t.Errorf("%s imports %s as %q, not as %q", path, p, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
