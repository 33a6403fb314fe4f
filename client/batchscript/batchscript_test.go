package batchscript

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// The cases are what a real sbatch made of the same lines.
func TestDirectives(t *testing.T) {
	for script, want := range map[string][]string{
		"#!/bin/sh\n#SBATCH -J a # c\ntrue\n":                  {"-J", "a"},
		"#!/bin/sh\n#SBATCH --comment=a#b\n":                   {"--comment=a"},
		"#!/bin/sh\n#SBATCH --comment=\"a # b\"\n":             {"--comment=a # b"},
		"#!/bin/sh\n#SBATCH --comment='a b' -J x\n":            {"--comment=a b", "-J", "x"},
		"#!/bin/sh\n#SBATCH --comment=a\\\\ b\n":               {`--comment=a\`, "b"},
		"#!/bin/sh\n#SBATCH --comment=a\\ b\n":                 {"--comment=a b"},
		"#!/bin/sh\n#SBATCH\t-J\ttab\n":                        {"-J", "tab"},
		"#!/bin/sh\n#SBATCH-J x\n":                             {"-J", "x"},
		"#!/bin/sh\n#sbatch -J x\n":                            nil,
		"#!/bin/sh\n #SBATCH -J x\n":                           nil,
		"#!/bin/sh\n# SBATCH -J x\n":                           nil,
		"#!/bin/sh\n##SBATCH -J x\n":                           nil,
		"#!/bin/sh\n\n# c\n\n#SBATCH -J x\n":                   {"-J", "x"},
		"#!/bin/sh\ntrue\n#SBATCH -J x\n":                      nil,
		"#!/bin/sh\n#SBATCH -J x\n#SBATCH -J y\n":              {"-J", "x", "-J", "y"},
		"#!/bin/sh\n#SBATCH\n#SBATCH   \n":                     nil,
		"#!/bin/sh\n#SBATCH --comment=a\"b c\"d\n":             {"--comment=ab cd"},
		"#!/bin/sh\n#SBATCH -J x  ":                            {"-J", "x"},
		"#!/bin/sh\n#SBATCH --comment=\"\"\n":                  {"--comment="},
		"#!/bin/sh\n#SBATCH \"\"\n":                            {""},
		"#!/usr/bin/env python3\n#SBATCH -n2\n\"\"\"doc\"\"\"": {"-n2"},
	} {
		found, err := Directives("x.sh", []byte(script))
		if err != nil {
			t.Errorf("%q: %v", script, err)
			continue
		}
		var got []string
		for _, d := range found {
			got = append(got, d.Words...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: words %q, want %q", script, got, want)
		}
	}
}

func TestUnmatchedQuoteNamesLine(t *testing.T) {
	_, err := Directives("d.sh", []byte("#!/bin/sh\n#SBATCH --comment=\"open\n"))
	if want := "d.sh: line 2: Unmatched `\"` in [--comment=\"open]"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCheck(t *testing.T) {
	for script, want := range map[string]string{
		"":                       "Batch script is empty!",
		" \n\t\n":                "Batch script contains only whitespace!",
		"echo hi\n":              "This does not look like a batch script.",
		"#!/bin/sh\r\ntrue\r\n":  "DOS line breaks",
		"#!/bin/sh\ntrue\x00\n":  "NULL character",
		"#!/bin/sh\ntrue\n":      "",
		"#!/bin/sh\nprintf '\r'": "",
	} {
		err := Check([]byte(script), nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", script, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %s", script, err, want)
		}
	}
	large := append([]byte("#!/bin/sh\n"), bytes.Repeat([]byte("# filler\n"), MaxBytes/9)...)
	if err := Check(large[:MaxBytes], nil); err != nil {
		t.Errorf("a script of the largest size: %v", err)
	}
	if err := Check(append(large[:MaxBytes], '#'), nil); err == nil {
		t.Error("a script over the limit was accepted")
	}
}

func FuzzDirectives(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -J 'a b' --mem=\"1 G\" # c\n")
	f.Add("#SBATCH \\\n#SBATCH '\n")
	f.Add("\x00#SBATCH\xff")
	f.Fuzz(func(t *testing.T, script string) {
		found, err := Directives("f", []byte(script))
		if err != nil {
			if fault, ok := err.(*Fault); !ok || len(fault.Lines) == 0 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		lines := strings.Count(script, "\n") + 1
		last := 0
		for _, d := range found {
			if d.Line <= last || d.Line > lines || len(d.Words) == 0 {
				t.Fatalf("directive %+v behind line %d of %d", d, last, lines)
			}
			last = d.Line
		}
		// What was read can be quoted and read again.
		for _, d := range found {
			quoted := ""
			for _, w := range d.Words {
				quoted += " " + quote(w)
			}
			if strings.ContainsAny(quoted, "\n") {
				continue
			}
			again, err := Directives("f", fmt.Appendf(nil, "#SBATCH%s\n", quoted))
			if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0].Words, d.Words) {
				t.Fatalf("%q quoted as %s gives %v, %v", d.Words, quoted, again, err)
			}
		}
		_ = Check([]byte(script), nil)
		_, _ = Translate([]byte(script))
	})
}

func quote(w string) string { return "'" + strings.ReplaceAll(w, "'", `'"'"'`) + "'" }
