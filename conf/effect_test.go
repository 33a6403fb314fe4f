package conf

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-hpc/sluice/"

// field is a field of a struct: "conf.Config.Prolog".
type field string

// usage says what becomes of fields: read for a purpose, or copied into a field of another struct.
type usage struct {
	read  map[field][]string       // by places that are no views
	into  map[field]map[field]bool // copied into
	words map[string]bool          // that are asked for of a Params: Has, Get, Int; in lower case
	keys  map[string][]field       // the fields that the row of a key sets, by the type of the row and the key: "conf.key Prolog"
}

// viewPackages show what a cluster is configured with: what only they read has no effect.
var viewPackages = []string{"client/", "proto/", "examples/"}

// notViews are below folders of views and act.
var notViews = []string{"client/sandbox", "client/wire"}

// viewFiles are those of package conf that print or check the configuration, or only read it.
var viewFiles = []string{"pairs.go", "pairrows.go", "diff.go", "check.go", "machine.go", "words.go", "keys.go", "set.go"}

// rowTypes are the fields of package conf's own tables: what stands there sets or prints a field.
var rowTypes = map[field]bool{"conf.key.set": true, "conf.recordKey.set": true, "conf.pairRow.value": true}

// listed is a package of this module as go list knows it.
type listed struct {
	path, export, dir string
	files             []string
}

func listPackages(t *testing.T) (ours []listed, exports map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \" \"}}{{if .CgoFiles}} {{join .CgoFiles \" \"}}{{end}}", "./...")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports = map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[f[0]] = f[1]
		if strings.HasPrefix(f[0], module) {
			ours = append(ours, listed{f[0], f[1], f[2], strings.Fields(f[3])})
		}
	}
	return ours, exports
}

func isView(pkg string) bool {
	in := func(folder string) bool { return pkg+"/" == folder || strings.HasPrefix(pkg+"/", folder) }
	return slices.ContainsFunc(viewPackages, in) && !slices.ContainsFunc(notViews, func(p string) bool { return in(p + "/") })
}

func findUsage(t *testing.T) *usage {
	t.Helper()
	u := &usage{read: map[field][]string{}, into: map[field]map[field]bool{}, words: map[string]bool{}, keys: map[string][]field{}}
	ours, exports := listPackages(t)
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imp := importer.ForCompiler(fset, "gc", lookup)
	for _, p := range ours {
		short := strings.TrimPrefix(p.path, module)
		if isView(short) || strings.HasPrefix(short, "conf/") {
			continue
		}
		var files []*ast.File
		for _, name := range p.files {
			f, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
			Uses: map[*ast.Ident]types.Object{},
			Defs: map[*ast.Ident]types.Object{}}
		c := types.Config{Importer: imp, FakeImportC: true, Error: func(error) {}}
		_, _ = c.Check(p.path, fset, files, info)
		if short == "conf" {
			u.rows(info, files)
		}
		for _, f := range files {
			v := &visitor{u: u, info: info, fset: fset, inConf: short == "conf", file: filepath.Base(fset.Position(f.Pos()).Filename)}
			v.walk(f, nil)
		}
	}
	return u
}

type visitor struct {
	u      *usage
	info   *types.Info
	fset   *token.FileSet
	inConf bool
	file   string
}

func typeName(t types.Type) string {
	for {
		switch x := t.(type) {
		case *types.Pointer:
			t = x.Elem()
		case *types.Alias:
			t = types.Unalias(t)
		case *types.Named:
			if x.Obj().Pkg() == nil {
				return ""
			}
			return strings.TrimPrefix(x.Obj().Pkg().Path(), module) + "." + x.Obj().Name()
		default:
			return ""
		}
	}
}

// fieldOf is the field that a selector reads, also by the getter of a message.
func (v *visitor) fieldOf(s *ast.SelectorExpr) field {
	sel := v.info.Selections[s]
	if sel == nil {
		return ""
	}
	owner := sel.Recv()
	for _, i := range sel.Index()[:len(sel.Index())-1] { // through embedded structs
		if p, ok := owner.Underlying().(*types.Pointer); ok {
			owner = p.Elem()
		}
		st, ok := owner.Underlying().(*types.Struct)
		if !ok {
			return ""
		}
		owner = st.Field(i).Type()
	}
	name := typeName(owner)
	if name == "" || sel.Kind() == types.MethodExpr {
		return ""
	}
	if sel.Kind() == types.MethodVal {
		rest, ok := strings.CutPrefix(s.Sel.Name, "Get")
		if !ok || !strings.HasPrefix(name, "proto/") {
			return ""
		}
		return field(name + "." + rest)
	}
	return field(name + "." + s.Sel.Name)
}

// walk goes through n; into is where what is read is copied, nil for a use.
func (v *visitor) walk(n ast.Node, into []field) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, r := range n.Rhs {
				to := []field(nil)
				if len(n.Lhs) == len(n.Rhs) {
					if s, ok := n.Lhs[i].(*ast.SelectorExpr); ok {
						if f := v.fieldOf(s); f != "" {
							to = []field{f}
						}
					}
				}
				v.walk(r, to)
			}
			for _, l := range n.Lhs {
				if s, ok := l.(*ast.SelectorExpr); ok {
					v.walk(s.X, nil)
				} else {
					v.walk(l, nil)
				}
			}
			return false
		case *ast.CompositeLit:
			name := typeName(v.info.Types[n].Type)
			for _, e := range n.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					v.walk(e, into)
					continue
				}
				if id, ok := kv.Key.(*ast.Ident); ok && name != "" {
					v.walk(kv.Value, []field{field(name + "." + id.Name)})
				} else {
					v.walk(kv.Value, into)
				}
			}
			return false
		case *ast.UnaryExpr:
			if s, ok := n.X.(*ast.SelectorExpr); ok && n.Op == token.AND { // to be set
				v.walk(s.X, nil)
				return false
			}
		case *ast.FuncDecl:
			return !(v.inConf && strings.HasPrefix(n.Name.Name, "check"))
		case *ast.CallExpr:
			v.noteWord(n)
		case *ast.SelectorExpr:
			if f := v.fieldOf(n); f != "" {
				v.note(f, n, into)
			}
		}
		return true
	})
}

func (v *visitor) note(f field, n ast.Node, into []field) {
	if len(into) > 0 {
		for _, to := range into {
			if rowTypes[to] {
				continue
			}
			if v.u.into[f] == nil {
				v.u.into[f] = map[field]bool{}
			}
			v.u.into[f][to] = true
		}
		return
	}
	if v.inConf && slices.Contains(viewFiles, v.file) {
		return
	}
	v.u.read[f] = append(v.u.read[f], v.fset.Position(n.Pos()).String())
}

// noteWord keeps the word that a call of Params.Has, Get or Int asks for.
func (v *visitor) noteWord(call *ast.CallExpr) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	sel := v.info.Selections[s]
	if sel == nil || typeName(sel.Recv()) != "conf.Params" {
		return
	}
	if value := v.info.Types[call.Args[0]].Value; value != nil {
		v.u.words[strings.ToLower(constant.StringVal(value))] = true
	}
}

// rows finds which fields the rows of the tables of keys set.
func (u *usage) rows(info *types.Info, files []*ast.File) {
	bodies := map[types.Object]*ast.FuncDecl{}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				bodies[info.Defs[fn.Name]] = fn
			}
		}
	}
	v := &visitor{u: u, info: info}
	var fields func(n ast.Node, seen map[types.Object]bool) []field
	fields = func(n ast.Node, seen map[types.Object]bool) (out []field) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if f := v.fieldOf(n); f != "" && !strings.HasPrefix(string(f), "conf/") && !strings.HasPrefix(string(f), "conf.Params.") {
					out = append(out, f)
					return false // what it is a field of does not count
				}
			case *ast.Ident:
				if o := info.Uses[n]; bodies[o] != nil && !seen[o] {
					seen[o] = true
					out = append(out, fields(bodies[o].Body, seen)...)
				}
			}
			return true
		})
		return out
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			name, set := "", []field(nil)
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				switch id, _ := kv.Key.(*ast.Ident); {
				case id != nil && id.Name == "name" && info.Types[kv.Value].Value != nil:
					name = constant.StringVal(info.Types[kv.Value].Value)
				case id != nil && id.Name == "set":
					set = fields(kv.Value, map[types.Object]bool{})
				}
			}
			if name != "" && set != nil {
				row := types.TypeString(info.Types[lit].Type, func(*types.Package) string { return "" })
				u.keys[row+" "+name] = set
			}
			return true
		})
	}
}

// effective says whether something comes of a field.
func (u *usage) effective(f field, seen map[field]bool) bool {
	if seen[f] {
		return false
	}
	seen[f] = true
	if len(u.read[f]) > 0 {
		return true
	}
	for to := range maps.Keys(u.into[f]) {
		if u.effective(to, seen) {
			return true
		}
	}
	return false
}

// elsewhere are keys that have their effect by way of something that the test does not follow.
var elsewhere = map[string]string{
	"key MessageTimeout":                         "the commands read it by themselves (client/wire): how long they wait for a controller",
	"key JobSubmitPlugins":                       "the controller asks Config.JobSubmitScript",
	"key KillOnBadExit":                          "srun reads it by itself, as those below",
	"key WaitTime":                               "as KillOnBadExit",
	"key SrunPortRange":                          "as KillOnBadExit",
	"key SrunProlog":                             "as KillOnBadExit",
	"key SrunEpilog":                             "as KillOnBadExit",
	"key MpiDefault":                             "as KillOnBadExit",
	"key InteractiveStepOptions":                 "salloc reads it by itself",
	"key LaunchParameters":                       "salloc reads it by itself",
	"word LaunchParameters use_interactive_step": "salloc reads it by itself",
	"key TrackWCKey":                             "the commands show WCKeys where it is set: the controller tells them",
	"key PrologFlags":                            "sacct shows an extern step for Contain: the controller tells it",
	"key ControlMachine":                         "finish reads it when all lines are read",
	"key ControlAddr":                            "finish reads it when all lines are read",
}

// vainly are keys without an effect of which the field is read all the same.
var vainly = map[string]string{
	"recordKey[nodeSpec] BcastAddr": "it is counted, as the other addresses are",
}

// tables are the tables of keys: of each key why it has no effect.
func tables() map[string]map[string]string {
	out := map[string]map[string]string{"key": {}}
	for _, k := range parsed() {
		out["key"][k.name] = k.why
	}
	add := func(row string, names, whys []string) {
		out[row] = map[string]string{}
		for i, name := range names {
			out[row][name] = whys[i]
		}
	}
	addRows(add, "recordKey[nodeSpec]", nodeKeys())
	addRows(add, "recordKey[Partition]", partitionKeys())
	addRows(add, "recordKey[GresLine]", gresKeys())
	addRows(add, "recordKey[Cgroup]", cgroupKeys())
	addRows(add, "recordKey[Switch]", switchKeys())
	addRows(add, "recordKey[downNodes]", downNodesKeys())
	addRows(add, "recordKey[nodeSet]", nodeSetKeys())
	return out
}

func addRows[T any](add func(string, []string, []string), row string, keys map[string]recordKey[T]) {
	var names, whys []string
	for _, k := range keys {
		if k.set != nil {
			names, whys = append(names, k.name), append(whys, k.why)
		}
	}
	add(row, names, whys)
}

// TestKeysHaveAnEffect: a key is said to have an effect if and only if something outside of this package reads what it sets. To
// print it is none, nor to check it, nor to copy it to where it is only printed; a value that is copied, into a message or into
// settings, counts where the copy is read.
func TestKeysHaveAnEffect(t *testing.T) {
	u := findUsage(t)
	for row, keys := range tables() {
		if len(keys) == 0 {
			t.Errorf("there is no %s", row)
		}
		for name, why := range keys {
			id := row + " " + name
			fields := u.keys[id]
			if len(fields) == 0 && elsewhere[id] == "" {
				t.Errorf("cannot find what %s sets", id)
			}
			read := slices.ContainsFunc(fields, func(f field) bool { return u.effective(f, map[field]bool{}) }) || elsewhere[id] != ""
			words, list := wordTables()[strings.ToLower(name)]
			switch {
			case row == "key" && list && words.works == "" && why == "": // each word is told
				if read {
					t.Errorf("%s: no word of it works, but %v is read at %v: say which words do in words.go", id, fields, u.read[fields[0]])
				}
			case why == "" && !read:
				t.Errorf("%s has no effect: nothing outside of package conf reads %v; say why, and what to do instead", id, fields)
			case why != "" && read && vainly[id] == "":
				t.Errorf("%s has an effect: %v is read at %v; delete its why", id, fields, u.read[fields[0]])
			}
		}
	}
}

// TestWordsHaveAnEffect: the words of SchedulerParameters and the like that are said to work are those that the program asks for.
func TestWordsHaveAnEffect(t *testing.T) {
	u := findUsage(t)
	params := []string{"SchedulerParameters", "SlurmctldParameters", "SlurmdParameters", "LaunchParameters", "PreemptParameters",
		"DependencyParameters", "AccountingStorageParameters", "MetricsParameters"}
	known := map[string]bool{}
	for _, key := range params {
		for word := range strings.FieldsSeq(wordTables()[strings.ToLower(key)].works) {
			known[strings.ToLower(word)] = true
			if !u.words[strings.ToLower(word)] && elsewhere["word "+key+" "+word] == "" {
				t.Errorf("%s=%s is said to work, and nothing asks for it", key, word)
			}
		}
	}
	for word := range u.words {
		if !known[word] {
			t.Errorf("%s works, and no table of words.go says so", word)
		}
	}
}
