package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
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
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

const file = "needs.gen.go"

// tables are the functions of package format that return rows of fields, by kind of record.
var tables = map[string][]string{"job": {"format.jobLetters", "format.jobNames"}, "node": {"format.nodeLetters", "format.nodeNames"}}

// folders are the packages of client to analyse, each after those that it imports.
var folders = []string{"format", "format/doc", "view", "squeue", "scontrol", "sinfo"}

// uses are the functions that process records in other ways than showing columns.
var uses = []struct {
	kind, name, doc string
	functions       []string
}{
	{"job", "NeedsOfChoice", "what squeue's options look at", []string{"squeue.selects", "squeue.expand"}},
	{"job", "NeedsOfJobBlock", "scontrol show job", []string{"format.AppendJob", "view.Matches", "view.AskedPart"}},
	{"job", "NeedsOfJobDocument", "a job of --json", []string{"doc.WriteJob", "view.Matches", "view.AskedPart", "squeue.selects",
		"squeue.expand"}},
	{"job", "NeedsOfSteps", "everything that is shown of steps", []string{"format.Steps", "format.StepsOf", "format.AppendStep",
		"doc.WriteStep", "squeue.wantsStep", "view.Matches", "squeue.selects", "squeue.expand"}},
	{"node", "NeedsOfFolding", "what sinfo's rows are made of", []string{"sinfo.showsNode", "format.Match", "format.PartitionNodes",
		"format.FoldNodes"}},
	{"node", "NeedsOfNodeGroup", "a row of sinfo --json", []string{"sinfo.showsNode", "format.Match", "format.PartitionNodes",
		"format.FoldNodes", "doc.WriteNodeGroup"}},
	{"node", "NeedsOfPlaces", "the nodes of jobs in --json", []string{"view.NodesByName", "doc.WriteJob", "doc.WriteStep"}},
}

const module = "github.com/sluice-hpc/sluice/client/"

// source is the code of these packages: the body of each function and the value of each variable.
type source struct {
	info  types.Info
	decls map[types.Object]ast.Node
	scope map[string]types.Object // functions and methods by package name and name
}

func read(dir string) (*source, error) {
	src := &source{decls: map[types.Object]ast.Node{}, scope: map[string]types.Object{},
		info: types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	fset := token.NewFileSet()
	deps, err := compiled(dir, fset)
	if err != nil {
		return nil, err
	}
	for _, pkg := range folders {
		var files []*ast.File
		paths, err := filepath.Glob(filepath.Join(dir, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		// Calls of the generated functions do not type-check while those are missing; everything else does.
		conf := types.Config{Importer: deps, Error: func(error) {}}
		checked, _ := conf.Check(module+pkg, fset, files, &src.info)
		deps.ours[module+pkg] = checked
		for _, f := range files {
			src.add(f)
		}
	}
	return src, nil
}

// importerOf imports the packages just parsed from memory, and all others from their export data.
type importerOf struct {
	types.Importer
	ours map[string]*types.Package
}

func (i importerOf) Import(path string) (*types.Package, error) {
	if p := i.ours[path]; p != nil {
		return p, nil
	}
	return i.Importer.Import(path)
}

// compiled locates the export data of the packages' dependencies.
func compiled(dir string, fset *token.FileSet) (importerOf, error) {
	list := exec.Command("go", "list", "-e", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}")
	for _, pkg := range folders {
		list.Args = append(list.Args, "./"+pkg)
	}
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return importerOf{}, fmt.Errorf("cannot list what the commands import: %w", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	return importerOf{importer.ForCompiler(fset, "gc", lookup), map[string]*types.Package{}}, nil
}

// add records the body of each function and the value of each variable, including local ones.
func (src *source) add(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if o := src.info.Defs[n.Name]; o != nil && n.Body != nil {
				src.decls[o], src.scope[o.Pkg().Name()+"."+n.Name.Name] = n.Body, o
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if o := src.info.Defs[name]; o != nil && i < len(n.Values) {
					src.decls[o], src.scope[o.Pkg().Name()+"."+name.Name] = n.Values[i], o
				}
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE && len(n.Lhs) == len(n.Rhs) && src.info.Defs[id] != nil {
					src.decls[src.info.Defs[id]] = n.Rhs[i]
				}
			}
		}
		return true
	})
}

// records are the messages for whose fields needs are computed.
var records = map[string]protoreflect.MessageDescriptor{
	"JobRecord": (&pb.JobRecord{}).ProtoReflect().Descriptor(), "JobSpec": (&pb.JobSpec{}).ProtoReflect().Descriptor(),
	"NodeRecord": (&pb.NodeRecord{}).ProtoReflect().Descriptor(),
}

// walk collects the field numbers that code reads, by record.
type walk struct {
	src   *source
	seen  map[ast.Node]bool
	found map[string]map[int]bool
}

func (src *source) walk() *walk {
	return &walk{src: src, seen: map[ast.Node]bool{}, found: map[string]map[int]bool{"JobRecord": {}, "JobSpec": {}, "NodeRecord": {}}}
}

// node follows code and everything that it refers to.
func (w *walk) node(n ast.Node) {
	if n == nil || w.seen[n] {
		return
	}
	w.seen[n] = true
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			w.object(w.src.info.Uses[id])
		}
		return true
	})
}

func (w *walk) object(o types.Object) {
	switch o := o.(type) {
	case *types.Func:
		if recv := o.Signature().Recv(); recv != nil {
			w.field(recv.Type(), strings.TrimPrefix(o.Name(), "Get"))
		}
		w.node(w.src.decls[o.Origin()])
	case *types.Var:
		if o.IsField() {
			w.fieldOf(o)
		}
		w.node(w.src.decls[o])
	}
}

// field records a field by the name of its getter.
func (w *walk) field(t types.Type, name string) {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || records[named.Obj().Name()] == nil || named.Obj().Pkg().Path() != module+"msg" {
		return
	}
	fields := records[named.Obj().Name()].Fields()
	for i := range fields.Len() {
		if goName(fields.Get(i)) == name {
			w.found[named.Obj().Name()][int(fields.Get(i).Number())] = true
		}
	}
}

// fieldOf records a field that is read without its getter. The variable does not tell its struct, so all records are searched.
func (w *walk) fieldOf(o *types.Var) {
	if o.Pkg() == nil || o.Pkg().Path() != module+"msg" {
		return
	}
	for name := range records {
		if t := o.Pkg().Scope().Lookup(name); t != nil {
			s := t.Type().Underlying().(*types.Struct)
			for i := range s.NumFields() {
				if s.Field(i) == o {
					w.field(t.Type(), o.Name())
				}
			}
		}
	}
}

// goName is the Go name of a field: array_job_id is ArrayJobId.
func goName(f protoreflect.FieldDescriptor) string {
	var b strings.Builder
	for _, part := range strings.Split(string(f.Name()), "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// row is a field of a table, under the name returned by Field.key.
type row struct {
	key  string
	walk *walk
}

// rows reads the rows of a function that returns []Field[…]{…}.
func (src *source) rows(function string) (rows []row) {
	ast.Inspect(src.decls[src.scope[function]], func(n ast.Node) bool {
		c, ok := n.(*ast.CompositeLit)
		if key := keyOf(c); ok && key != "" {
			w := src.walk()
			w.node(c)
			rows = append(rows, row{key, w})
			return false
		}
		return true
	})
	return rows
}

// keyOf returns the first name of a row, or its letter; "" if it is not a row.
func keyOf(c *ast.CompositeLit) (key string) {
	if c == nil {
		return ""
	}
	for _, e := range c.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return ""
		}
		switch name, _ := kv.Key.(*ast.Ident); {
		case name == nil:
			return ""
		case name.Name == "Letter" && key == "":
			if lit, ok := kv.Value.(*ast.BasicLit); ok {
				key = strings.Trim(lit.Value, "'")
			}
		case name.Name == "Names":
			if list, ok := kv.Value.(*ast.CompositeLit); ok && len(list.Elts) > 0 {
				if lit, ok := list.Elts[0].(*ast.BasicLit); ok {
					key, _ = strconv.Unquote(lit.Value)
				}
			}
		}
	}
	return key
}

func generate(dir string) ([]byte, error) {
	src, err := read(dir)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBufferString(
		"// Code generated by client/format/gen (make generate). DO NOT EDIT.\n\npackage format\n\nimport " +
			"\"github.com/sluice-hpc/sluice/proto/coding\"\n")
	for _, kind := range slices.Sorted(maps.Keys(tables)) {
		fmt.Fprintf(b,
			"\n// %sNeeds is what the field of a table reads; of one that is not known, everything.\nfunc %sNeeds(key string) Needs "+
				"{\nswitch key {\n", kind, kind)
		seen := map[string]bool{}
		for _, table := range tables[kind] {
			rows := src.rows(table)
			if len(rows) < 5 {
				return nil, fmt.Errorf("found %d rows in %s", len(rows), table)
			}
			for _, r := range rows {
				if seen[r.key] {
					return nil, fmt.Errorf("two rows of %s are called %q", kind, r.key)
				}
				seen[r.key] = true
				fmt.Fprintf(b, "case %q:\nreturn %s\n", r.key, r.walk.needs(kind))
			}
		}
		b.WriteString("}\nreturn everything\n}\n")
	}
	for _, u := range uses {
		w := src.walk()
		for _, f := range u.functions {
			if src.scope[f] == nil {
				return nil, fmt.Errorf("%s: there is no function %s", u.name, f)
			}
			w.object(src.scope[f])
		}
		fmt.Fprintf(b, "\n// %s is %s.\nfunc %s() Needs { return %s }\n", u.name, u.doc, u.name, w.needs(u.kind))
	}
	return format.Source(b.Bytes())
}

// needs formats the value as Go code.
func (w *walk) needs(kind string) string {
	if kind == "node" {
		return "Needs{Node: " + set(w.found["NodeRecord"]) + "}"
	}
	if len(w.found["JobSpec"]) > 0 {
		w.found["JobRecord"][int(records["JobRecord"].Fields().ByName("spec").Number())] = true
	}
	return "Needs{Job: " + set(w.found["JobRecord"]) + ", Spec: " + set(w.found["JobSpec"]) + "}"
}

func set(numbers map[int]bool) string {
	var words [3]uint64
	for n := range numbers {
		words[n/64] |= 1 << (n % 64)
	}
	return fmt.Sprintf("coding.FieldSet{%#x, %#x, %#x}", words[0], words[1], words[2])
}
