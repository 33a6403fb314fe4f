package jsonout

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

func TestLooksAsSlurmPrints(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, false, false)
	w.List("jobs")
	w.Object("")
	w.Str("name", "a/b")
	w.Number("priority", 7)
	w.Strs("job_state", "RUNNING")
	w.Strs("flags")
	w.Object("power")
	w.End()
	w.FloatNumber("billable_tres", true, 1)
	w.End()
	w.End()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{
  "jobs": [
    {
      "name": "a\/b",
      "priority": {
        "set": true,
        "infinite": false,
        "number": 7
      },
      "job_state": [
        "RUNNING"
      ],
      "flags": [
      ],
      "power": {
      },
      "billable_tres": {
        "set": true,
        "infinite": false,
        "number": 1.0
      }
    }
  ]
}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestYAML(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, true, false)
	w.List("jobs")
	w.Object("")
	w.Str("name", "no")
	w.Limit("time_limit", 5, true)
	w.Strs("job_state", "RUNNING", "CONFIGURING")
	w.Strs("flags")
	w.End()
	w.End()
	w.Tail(Meta{Cluster: "c1", Command: []string{"squeue", "--yaml"}}, nil, nil)
	_ = w.Close()
	want := "%YAML 1.1\n---\njobs:\n- name: \"no\"\n  time_limit:\n    set: false\n    infinite: true\n    number: 0\n  job_state:\n  - " +
		"RUNNING\n  - CONFIGURING\n  flags: []\nmeta:\n"
	if !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "errors: []\nwarnings: []\n...\n") {
		t.Errorf("got\n%s\nwant it to begin\n%s", out.String(), want)
	}
}

// drawTree is any document: a value, and the calls that write it.
func drawTree(t *rapid.T, w *Writer, key string, depth int) any {
	kinds := 6
	if depth > 4 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		s := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"", "yes", "-", "1e3", "0x1", "a: b", "# c", "\x00\x1b[2J", "null", "~", "=", "<<",
				"\u202e", "\xff\xfe", "2001-01-01", "/a/b.out", "!x", "&x", "*x", "'", "\"", "\\", "inf", ".5", "12_000", "1:30"})).Draw(t,
			"text")
		w.Str(key, s)
		return string([]rune(s))
	case 1:
		n := rapid.Int64Range(-1<<52, 1<<52).Draw(t, "int")
		w.Int(key, n)
		return float64(n)
	case 2:
		v := rapid.Bool().Draw(t, "bool")
		w.Bool(key, v)
		return v
	case 3:
		f := rapid.Float64().Draw(t, "float")
		w.Float(key, f)
		return f
	case 4:
		w.List(key)
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			list = append(list, drawTree(t, w, "", depth+1))
		}
		w.End()
		return list
	}
	w.Object(key)
	members := drawMembers(t, w, depth)
	w.End()
	return members
}

func drawMembers(t *rapid.T, w *Writer, depth int) map[string]any {
	members := map[string]any{}
	for _, key := range []string{"a", "b_c", "CPU", "d"}[:rapid.IntRange(0, 4).Draw(t, "members")] {
		members[key] = drawTree(t, w, key, depth+1)
	}
	return members
}

// numbers makes the whole numbers of a YAML reader floats, which is what JSON's are.
func numbers(v any) any {
	switch x := v.(type) {
	case int:
		return float64(x)
	case int64:
		return float64(x)
	case uint64:
		return float64(x)
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	}
	return v
}

// Every document is read back as what was written, by readers that are not ours, and shows nothing to a terminal but text.
func TestReadersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asYAML, compact := rapid.Bool().Draw(t, "yaml"), rapid.Bool().Draw(t, "compact")
		var out bytes.Buffer
		w := New(&out, asYAML, compact)
		want := any(drawMembers(t, w, 0))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var got any
		var err error
		if asYAML {
			err = yaml.Unmarshal(out.Bytes(), &got)
			got = numbers(got)
		} else {
			err = json.Unmarshal(out.Bytes(), &got)
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v from\n%s", got, want, out.String())
		}
		for _, r := range out.String() {
			if r < ' ' && r != '\n' || hidden(r) {
				t.Fatalf("%U reaches the terminal", r)
			}
		}
		if !utf8.Valid(out.Bytes()) {
			t.Fatal("not UTF-8")
		}
	})
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no room")
	}
	return len(p), nil
}

func TestDestinationFails(t *testing.T) {
	w := New(&full{left: 1 << 17}, false, false)
	w.List("x")
	for range 20000 {
		w.Number("", 1)
	}
	w.End()
	if err := w.Close(); err == nil || !w.Started() {
		t.Errorf("err %v, started %v", err, w.Started())
	}
}

func TestCheckParser(t *testing.T) {
	for arg, want := range map[string]bool{"": true, "v0.0.42": true, "data_parser/v0.0.42": true, "v0.0.42+fast": true, "v0.0.41": false,
		"v0.0.42+complex": false, "x": false} {
		if got := CheckParser(arg); got != want {
			t.Errorf("CheckParser(%q) = %v", arg, got)
		}
	}
}
