package fieldtest

import (
	"reflect"
	"strconv"
)

// field is a field of a struct, possibly nested.
type field struct {
	name string
	kind reflect.Type
	path []int // field indices; pointers and first elements of slices are followed
}

// fieldsOf lists the exported fields of a struct. Those of an embedded struct count as its own.
func fieldsOf[T any]() []field {
	return appendFields(nil, reflect.TypeFor[T](), "", nil, 0)
}

// maxDepth bounds nesting, because structs may be recursive.
const maxDepth = 3

func appendFields(list []field, t reflect.Type, prefix string, path []int, depth int) []field {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(append([]int(nil), path...), i)
		inner := elem(sf.Type)
		if sf.Anonymous && inner.Kind() == reflect.Struct {
			list = appendFields(list, inner, prefix, at, depth)
			continue
		}
		if !sf.IsExported() {
			continue
		}
		list = append(list, field{prefix + sf.Name, sf.Type, at})
		if inner.Kind() == reflect.Struct && sf.Type.Kind() != reflect.Pointer && !isMessage(inner) && depth < maxDepth {
			list = appendFields(list, inner, prefix+sf.Name+".", at, depth+1)
		}
	}
	return list
}

// elem returns the element type of a list or pointer.
func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

// of returns the field in a value; invalid if a value on the way is nil or empty.
func (f *field) of(v any) reflect.Value {
	r := reflect.ValueOf(v).Elem()
	for _, i := range f.path {
		for r.Kind() == reflect.Pointer || r.Kind() == reflect.Slice {
			if r.Kind() == reflect.Slice && r.Len() == 0 || r.Kind() == reflect.Pointer && r.IsNil() {
				return reflect.Value{}
			}
			if r.Kind() == reflect.Slice {
				r = r.Index(0)
			} else {
				r = r.Elem()
			}
		}
		r = r.Field(i)
	}
	return r
}

// change gives the field another value; false if that is impossible.
func (f *field) change(v any) bool {
	r := f.of(v)
	if !r.IsValid() || !r.CanSet() {
		return false
	}
	for n := int64(2); n < 5; n++ {
		other := reflect.New(r.Type()).Elem()
		if !fill(other, n, 0) {
			return false
		}
		if !equal(other.Interface(), r.Interface()) {
			r.Set(other)
			return true
		}
	}
	return false
}

// Filled returns a value with every exported field set where possible: numbers and texts are 1, lists have one element.
func Filled[T any]() *T {
	v := new(T)
	fill(reflect.ValueOf(v).Elem(), 1, 0)
	return v
}

// maxFill bounds the nesting of generated values.
const maxFill = 6

// fill sets v to a value that depends on n; false if it cannot generate one.
func fill(v reflect.Value, n int64, depth int) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.String:
		v.SetString(strconv.FormatInt(n, 10))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0), n, depth+1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), n, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if !fill(key, n, depth+1) || !fill(value, n, depth+1) {
			return false
		}
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		return fillStruct(v, n, depth)
	default:
		return false
	}
	return true
}

func fillStruct(v reflect.Value, n int64, depth int) bool {
	if depth > maxFill {
		return true
	}
	some := v.NumField() == 0
	for i := range v.NumField() {
		if sf := v.Type().Field(i); sf.IsExported() && fill(v.Field(i), n, depth+1) {
			some = true
		}
	}
	return some
}
