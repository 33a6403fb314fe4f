// Package fieldtest tests functions that name the fields of a struct one by one: copies, comparisons, conversions. Such a list is
// complete when written and silently wrong once the struct gains a field. The checks here change each field in turn by reflection
// and fail for each one that the function does not handle (Compares, Shows, Copies, Clears, Follows). A field may be left out only
// by name and with a reason; an obsolete entry fails as well.
//
// Fields of nested structs, also in a slice, are named with a dot, "Gres.Type". Pointers are not followed: their targets may be
// shared, and have tests of their own. Leaving out a field leaves out the fields within it.
package fieldtest

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/google/go-cmp/cmp"
)

// LeftOut are the fields that a function does not handle, with the reason.
type LeftOut map[string]string

// Shows checks that result differs for values that differ in any one field. make returns a fresh value each time; nil stands for
// one with all fields set. The result may be anything comparable: a record, a key, a list of them.
func Shows[T any](t *testing.T, make func() *T, result func(*T) any, out LeftOut) {
	t.Helper()
	if make == nil {
		make = Filled[T]
	}
	c := checker{t: t, out: out}
	for _, f := range fieldsOf[T]() {
		a, b := make(), make()
		if !f.change(b) {
			t.Errorf("%s: a value of type %s cannot be made up here: set it in make, or leave it out", f.name, f.kind)
			continue
		}
		c.field(f.name, !equal(result(a), result(b)), "a change does not show in the result")
	}
	c.stale()
}

// Compares checks a comparison: values that differ in any one field are not the same.
func Compares[T any](t *testing.T, make func() *T, same func(a, b *T) bool, out LeftOut) {
	t.Helper()
	if make == nil {
		make = Filled[T]
	}
	if !same(make(), make()) {
		t.Fatal("two values that differ in nothing are not the same")
	}
	Shows(t, make, func(v *T) any { return same(make(), v) }, out)
}

// Copies checks a copy: each field has the original's value in the copy, and those left out do not.
func Copies[T any](t *testing.T, clone func(*T) *T, out LeftOut) {
	t.Helper()
	a := Filled[T]()
	b := clone(Filled[T]())
	c := checker{t: t, out: out}
	for _, f := range fieldsOf[T]() {
		if !strings.Contains(f.name, ".") {
			c.field(f.name, equal(f.of(a).Interface(), f.of(b).Interface()), "it is not copied")
		}
	}
	c.stale()
}

// Clears checks a function that clears some fields and keeps the others. Each field must be in one of two lists, so that whoever
// adds a field has to decide. The lists are names separated by blanks.
func Clears[T any](t *testing.T, clear func(*T), cleared, kept string) {
	t.Helper()
	v := Filled[T]()
	clear(v)
	lists := map[string]string{}
	for _, name := range strings.Fields(cleared) {
		lists[name] = "cleared"
	}
	for _, name := range strings.Fields(kept) {
		lists[name] += "kept"
	}
	for _, f := range fieldsOf[T]() {
		if strings.Contains(f.name, ".") {
			continue
		}
		found := "kept"
		if f.of(v).IsZero() {
			found = "cleared"
		}
		if lists[f.name] != found {
			t.Errorf("%s is %s, and listed as %q", f.name, found, lists[f.name])
		}
		delete(lists, f.name)
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		t.Errorf("%s is listed as %s, but there is no such field", name, lists[name])
	}
}

// Sets checks that a function's result has every field set.
func Sets[T any](t *testing.T, made *T, out LeftOut) {
	t.Helper()
	c := checker{t: t, out: out}
	for _, f := range fieldsOf[T]() {
		if v := f.of(made); v.IsValid() {
			c.field(f.name, !v.IsZero(), "nothing sets it")
		}
	}
	c.stale()
}

// Follows checks the key of a cache: if a change of a field changes the derived value, it must change the key, too.
func Follows[T any](t *testing.T, make func() *T, derived, key func(*T) any, out LeftOut) {
	t.Helper()
	if make == nil {
		make = Filled[T]
	}
	c := checker{t: t, out: out}
	read := 0
	for _, f := range fieldsOf[T]() {
		a, b := make(), make()
		if !f.change(b) || equal(derived(a), derived(b)) {
			continue
		}
		read++
		c.field(f.name, !equal(key(a), key(b)), "what is derived from it differs, and the key does not")
	}
	if read == 0 {
		t.Error("nothing that is derived depends on any field")
	}
	c.stale()
}

// checker compares the findings with the list of fields left out.
type checker struct {
	t    *testing.T
	out  LeftOut
	used map[string]bool
}

func (c *checker) field(name string, handled bool, fault string) {
	c.t.Helper()
	entry, left := c.entry(name)
	if c.used == nil {
		c.used = map[string]bool{}
	}
	switch {
	case !handled && !left:
		c.t.Errorf("%s: %s; handle it, or leave it out and say why", name, fault)
	case !handled:
		c.used[entry] = true
	}
}

// entry finds the entry that leaves a field out: for the field itself, or one that contains it.
func (c *checker) entry(name string) (string, bool) {
	for {
		if _, ok := c.out[name]; ok {
			return name, true
		}
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return "", false
		}
		name = name[:i]
	}
}

func (c *checker) stale() {
	c.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c.out)) {
		if !c.used[name] {
			c.t.Errorf("%s is listed as left out (%s), but it is handled or there is no such field", name, c.out[name])
		}
		if c.out[name] == "" {
			c.t.Errorf("%s is left out without a reason", name)
		}
	}
}

func equal(a, b any) bool {
	return cmp.Equal(a, b, protocmp.Transform(), cmp.Exporter(func(reflect.Type) bool { return true }))
}

var messageType = reflect.TypeFor[proto.Message]()

func isMessage(t reflect.Type) bool {
	return t.Implements(messageType) || reflect.PointerTo(t).Implements(messageType)
}
