package record

import (
	"reflect"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
)

// TestKeyHasAllFields: requests that differ in any one field are told apart.
func TestKeyHasAllFields(t *testing.T) {
	seen := map[string]string{(&Request{}).Key(): "nothing"}
	fields := reflect.TypeFor[Request]()
	for i := range fields.NumField() {
		r := &Request{}
		switch f := reflect.ValueOf(r).Elem().Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(3)
		case reflect.Uint32:
			f.SetUint(3)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		default:
			t.Fatalf("%s is of a kind that this test does not know", fields.Field(i).Name)
		}
		key := r.Key()
		if other, ok := seen[key]; ok {
			t.Errorf("%s alone has the key of %s alone", fields.Field(i).Name, other)
		}
		seen[key] = fields.Field(i).Name
	}
}

// TestKeyHasEveryField: requests that differ in anything have different keys, or one job would be placed as another asked.
func TestKeyHasEveryField(t *testing.T) {
	fieldtest.Shows(t, nil, func(r *Request) any { return r.Key() }, nil)
}
