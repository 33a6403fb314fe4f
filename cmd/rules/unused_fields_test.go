package rules

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	gopackages "golang.org/x/tools/go/packages"
)

// Why fields stay that nothing reads, or nothing writes.
const (
	reply     = "every reply says of which state it is; a client of several controllers needs it"
	wire      = "the command reads it by its tag, without decoding the whole (client/wire)"
	service   = "part of the service for clients other than these commands"
	generated = "generated code alone reads it (encode.gen.go)"
	option    = "the option is accepted as by Slurm and has no effect here"
	confKept  = "read from the file and checked, and without effect (sluice conf check says so)"
	planned   = "of plans and limits that tests read, or that accounts will need"
	kernel    = "the kernel reads it"
	seam      = "tests use it to look at, or to get in the way of, what is behind it"
	signal    = "the event is what counts: it tells its receiver to look again"
)

// unusedFields are fields that nothing reads, or nothing writes, and that stay: why.
var unusedFields = map[string]string{
	"client/joboptions.Request.IgnorePBS": option,
	"client/joboptions.Request.Wrap":      option,
	"client/scontrol.showOptions.hide":    option,
	"client/sinfo.options.hide":           option,
	"client/squeue.options.arrayUnique":   option,
	"client/squeue.options.hide":          option,
	"conf.Cgroup.File":                    confKept,
	"conf.Config.GresFile":                confKept,
	"conf.Config.PriorityWeightTRES":      confKept,
	"conf.Ignored.Value":                  confKept,
	"conf.Node.BcastAddr":                 confKept,
	"conf.Node.CPUBind":                   confKept,
	"conf.Partition.BillingWeights":       confKept,
	"conf.Partition.CPUBind":              confKept,
	"conf/tres.Weight.Name":               confKept,
	"conf/tres.Weight.Value":              confKept,
	"ctld/journal.report.meta":            seam,
	"message.AccountUsageReply.Seq":       reply,
	"message.AccountingReply.Extern":      wire,
	"message.AccountingReply.Jobs":        wire,
	"message.AccountingReply.NowNs":       wire,
	"message.AccountingReply.Seq":         reply,
	"message.AccountingReply.Steps":       wire,
	"message.AccountingReply.Warning":     wire,
	"message.AccountingReply.Wckeys":      wire,
	"message.BackupReply.Bytes":           service,
	"message.BackupReply.Path":            service,
	"message.BackupReply.Seq":             reply,
	"message.BackupRequest.Path":          service,
	"message.CancelJobsReply.Seq":         reply,
	"message.ControlJobsReply.Seq":        reply,
	"message.CreateStepReply.Seq":         reply,
	"message.CrontabReply.Seq":            reply,
	"message.Fields.Node":                 generated,
	"message.Fields.Spec":                 generated,
	"message.GpusReply.Seq":               reply,
	"message.JobSpec.WaitAllNodes":        option,
	"message.JobSpec.WarnResv":            option,
	"message.JobsReply.NowNs":             wire,
	"message.JobsReply.Seq":               reply,
	"message.NodesReply.Seq":              reply,
	"message.PartitionsReply.Seq":         reply,
	"message.PartitionsRequest.Names":     service,
	"message.PingReply.Cluster":           service,
	"message.PingReply.Pid":               service,
	"message.PingReply.Seq":               reply,
	"message.PingReply.StartNs":           service,
	"message.PingReply.Version":           service,
	"message.ReservationsReply.Seq":       reply,
	"message.ReservationsRequest.Names":   service,
	"message.StepsReply.NowNs":            wire,
	"message.StepsReply.Seq":              reply,
	"message.SubmitReply.Seq":             reply,
	"message.UpdateReply.Seq":             reply,
	"noded/gpu.Fake.hang":                 seam,
	"noded/link.Event.Sent":               signal,
	"noded/stepd.action.flags":            kernel,
	"noded/stepd.action.handler":          kernel,
	"noded/stepd.action.mask":             kernel,
	"noded/stepd.action.restorer":         kernel,
	"sched/record.Plan.Seq":               planned,
	"sched/record.Preempt.Task":           planned,
	"sched/record.Reservation.IgnoreJobs": planned,
	"sched/record.Reserve.End":            planned,
	"sched/record.Reserve.Partition":      planned,
	"sched/record.Reserve.Promised":       planned,
	"sched/record.Reserve.Task":           planned,
	"sched/record.Stats.Changed":          planned,
}

// TestFieldsAreUsed: each field of a struct of this module, and so each field of a message, is written somewhere and read somewhere
// outside of tests. A field that is only written says nothing; one that is only read is always empty. Exported fields of structs that
// are no messages may be set by tests alone: options have defaults. What only tests use as a whole is not looked at.
func TestFieldsAreUsed(t *testing.T) {
	u := &fieldUses{reads: map[string]bool{}, writes: map[string]bool{}, where: map[string]token.Position{}, names: map[*types.Var]string{}}
	u.load(t)
	left := maps.Clone(unusedFields)
	for _, name := range slices.Sorted(maps.Keys(u.where)) {
		fault := ""
		switch {
		case !u.reads[name] && !u.writes[name]:
			fault = "nothing uses it"
		case !u.reads[name]:
			fault = "it is written and never read"
		case !u.writes[name] && mustBeWritten(name):
			fault = "it is read and never written"
		}
		_, listed := left[name]
		delete(left, name)
		if fault != "" && !listed {
			t.Errorf("%s: %s: %s; remove it (in a message: reserve its number)", u.where[name], name, fault)
		} else if fault == "" && listed {
			t.Errorf("%s is listed as unused, but it is used", name)
		}
	}
	for name := range left {
		t.Errorf("%s is listed as unused, but there is no such field", name)
	}
}

// mustBeWritten: a message's field, or one that no other package can set.
func mustBeWritten(name string) bool {
	return strings.HasPrefix(name, "message.") || !ast.IsExported(name[strings.LastIndexByte(name, '.')+1:])
}

// ofTests are the packages that only tests, and the simulator, use.
var ofTests = []string{"client/clienttest", "internal/test/fieldtest", "internal/test/leaktest", "internal/test/simtest", "noded/sruntest",
	"sched/sim"}

// fieldUses are the fields of the module's structs by name, "package.Type.Field", and what code does with them. A message and the
// plain struct that the commands have of it are one: what one side writes the other reads.
type fieldUses struct {
	reads, writes map[string]bool
	where         map[string]token.Position
	names         map[*types.Var]string
	getters       map[types.Object]*types.Var
}

func (u *fieldUses) load(t *testing.T) {
	t.Helper()
	fset := token.NewFileSet()
	const mode = gopackages.NeedName | gopackages.NeedFiles | gopackages.NeedCompiledGoFiles | gopackages.NeedImports |
		gopackages.NeedDeps | gopackages.NeedTypes | gopackages.NeedSyntax | gopackages.NeedTypesInfo
	pkgs, err := gopackages.Load(&gopackages.Config{Mode: mode, Fset: fset, Dir: "."}, "./...")
	if err != nil || gopackages.PrintErrors(pkgs) > 0 {
		t.Fatalf("cannot load the module: %v", err)
	}
	u.getters = map[types.Object]*types.Var{}
	for _, p := range pkgs {
		u.declared(fset, p)
	}
	for _, p := range pkgs {
		for _, f := range p.Syntax {
			if path := fset.Position(f.Pos()).Filename; !isGenerated(path) {
				u.file(p.TypesInfo, f)
			}
		}
	}
}

func isGenerated(path string) bool {
	return strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".gen.go") || !strings.HasSuffix(path, ".go")
}

// declared names the fields of a package's structs.
func (u *fieldUses) declared(fset *token.FileSet, p *gopackages.Package) {
	short := strings.TrimPrefix(p.PkgPath, module)
	if slices.Contains(ofTests, short) {
		return
	}
	if short == "client/msg" || strings.HasPrefix(short, "proto/sluice") {
		short = "message"
	}
	for id, obj := range p.TypesInfo.Defs {
		tn, ok := obj.(*types.TypeName)
		if !ok || id.Name == "_" || short == "message" && strings.Contains(id.Name, "_") { // the latter are the kinds of a oneof
			continue
		}
		s, ok := tn.Type().Underlying().(*types.Struct)
		if named, is := tn.Type().(*types.Named); !ok || !is || named.Obj() != tn {
			continue
		}
		u.fields(fset, short+"."+tn.Name(), s)
		for i := range s.NumFields() {
			get, _, _ := types.LookupFieldOrMethod(types.NewPointer(tn.Type()), true, p.Types, "Get"+s.Field(i).Name())
			if get != nil && short == "message" {
				u.getters[get] = s.Field(i)
			}
		}
	}
}

func (u *fieldUses) fields(fset *token.FileSet, of string, s *types.Struct) {
	for i := range s.NumFields() {
		f := s.Field(i)
		name := of + "." + f.Name()
		tag := reflect.StructTag(s.Tag(i))
		outside := tag.Get("json") != "" && tag.Get("protobuf") == "" || tag.Get("yaml") != "" // encoding/json reads and writes it
		outside = outside || tag.Get("protobuf_oneof") != ""                                   // its kinds' getters
		if f.Embedded() || f.Name() == "_" || outside {
			continue
		}
		if !f.Exported() && strings.HasPrefix(of, "message.") {
			continue
		}
		u.names[f] = name
		if _, ok := u.where[name]; !ok {
			u.where[name] = fset.Position(f.Pos())
		}
	}
}

func (u *fieldUses) file(info *types.Info, f *ast.File) {
	written := map[*ast.Ident]bool{} // fields that are written where they are named
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				target(x, written)
			}
		case *ast.IncDecStmt:
			target(n.X, written)
		case *ast.RangeStmt:
			target(n.Key, written)
			target(n.Value, written)
		case *ast.UnaryExpr:
			if x, ok := n.X.(*ast.SelectorExpr); ok && n.Op == token.AND {
				u.write(info.Uses[x.Sel])
			}
		case *ast.CompositeLit:
			u.literal(info, n, written)
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				u.whole(info.TypeOf(n.X), u.reads)
			}
		case *ast.MapType:
			u.whole(info.TypeOf(n.Key), u.reads)
		case *ast.CallExpr:
			if tv := info.Types[n.Fun]; tv.IsType() && len(n.Args) == 1 { // a conversion between structs
				u.whole(info.TypeOf(n.Args[0]), u.reads)
				u.whole(tv.Type, u.writes)
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal {
				if addressed(info, n) { // a method with a pointer receiver, or an element, may do either
					u.write(s.Obj())
				}
			}
		}
		return true
	})
	for id, obj := range info.Uses {
		if id.Pos() < f.FileStart || id.Pos() > f.FileEnd {
			continue
		}
		if written[id] {
			u.write(obj)
			continue
		}
		if get, ok := u.getters[obj]; ok {
			obj = get
		}
		u.read(obj)
	}
}

// target notes what an assignment writes: x.F, and of x.F[i] and *x.F the field, too, which stays read.
func target(x ast.Expr, written map[*ast.Ident]bool) {
	if s, ok := x.(*ast.SelectorExpr); ok {
		written[s.Sel] = true
	}
}

// addressed reports whether a field is of a kind that is filled in place: a struct, an array, a map, or an atomic value.
func addressed(info *types.Info, n *ast.SelectorExpr) bool {
	switch info.TypeOf(n).Underlying().(type) {
	case *types.Struct, *types.Array:
		return true
	}
	return false
}

func (u *fieldUses) literal(info *types.Info, n *ast.CompositeLit, written map[*ast.Ident]bool) {
	t := info.TypeOf(n)
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	if _, ok := t.Underlying().(*types.Struct); !ok {
		return
	}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			u.whole(t, u.writes)
			return
		}
		if id, ok := kv.Key.(*ast.Ident); ok {
			written[id] = true
		}
	}
}

// whole marks all fields of a struct type.
func (u *fieldUses) whole(t types.Type, in map[string]bool) {
	if t == nil {
		return
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i := range s.NumFields() {
		if name := u.names[s.Field(i).Origin()]; name != "" {
			in[name] = true
		}
	}
}

func (u *fieldUses) read(obj types.Object) {
	if v, ok := obj.(*types.Var); ok && v.IsField() {
		u.reads[u.names[v.Origin()]] = true
	}
}

func (u *fieldUses) write(obj types.Object) {
	if v, ok := obj.(*types.Var); ok && v.IsField() {
		u.writes[u.names[v.Origin()]] = true
	}
}
