package jointoken

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func sample() Token {
	return Token{Cluster: "c", Controllers: []string{"head:6817", "[::1]:6817"}, Fingerprint: bytes.Repeat([]byte{7}, 32), Node: "n1",
		Role: "node", ID: "0a1b", Secret: bytes.Repeat([]byte{9}, SecretLen)}
}

func TestTextAndBack(t *testing.T) {
	text, err := sample().Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{text, "  " + text + "\n", text[:40] + "\n  " + text[40:]} {
		if got, err := Parse(given); err != nil || !reflect.DeepEqual(got, sample()) {
			t.Errorf("%q: %+v, %v", given, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	text, _ := sample().Text()
	for given, want := range map[string]string{
		"":                                     "empty",
		"n1":                                   "does not begin",
		text[:len(text)-1]:                     "not copied whole",
		text[:len(text)-9]:                     "not copied whole",
		strings.Replace(text, "-1.", "-2.", 1): "another version",
		text + "A":                             "not copied whole",
		text[:30] + "_" + text[31:]:            "not copied whole",
		prefix + version:                       "not copied whole",
		prefix + version + strings.Repeat("A", 9000): "characters",
	} {
		if got, err := Parse(given); err == nil || !strings.Contains(err.Error(), want) || got.Node != "" {
			t.Errorf("%.60q: %+v, %v, want %q", given, got, err, want)
		}
	}
	for what, harm := range map[string]func(*Token){
		"cluster": func(t *Token) { t.Cluster = "" }, "host": func(t *Token) { t.Node = strings.Repeat("n", 256) },
		"role": func(t *Token) { t.Role = "" }, "id": func(t *Token) { t.ID = "" }, "secret": func(t *Token) { t.Secret = nil },
		"fingerprint": func(t *Token) { t.Fingerprint = t.Fingerprint[:31] }, "controllers": func(t *Token) { t.Controllers = nil },
		"address": func(t *Token) { t.Controllers = []string{"head"} },
	} {
		bad := sample()
		if harm(&bad); bad.check() == nil {
			t.Errorf("without a good %s: accepted", what)
		}
		if _, err := bad.Text(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("without a good %s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, _ := sample().Text()
	f.Add(text)
	f.Add(text[:len(text)-4])
	f.Add(prefix + version + "e30")
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := Parse(text)
		if err != nil {
			return
		}
		again, err := tok.Text()
		if err != nil {
			t.Fatalf("%+v was read from %q and cannot be written: %v", tok, text, err)
		}
		if back, err := Parse(again); err != nil || !reflect.DeepEqual(back, tok) {
			t.Fatalf("%+v became %+v, %v", tok, back, err)
		}
	})
}
