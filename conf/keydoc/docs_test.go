package keydoc

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew from the tables")

// TestDocumentedKeys holds docs/configuration.md against the tables: every key, every word, and what comes of it. With -update it is
// written anew.
func TestDocumentedKeys(t *testing.T) {
	const file, begin, end = "../../docs/configuration.md", "<!-- keys: go test ./conf/keydoc -run DocumentedKeys -update -->\n",
		"<!-- end of keys -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", file, begin, end)
	}
	want := keyTables()
	if old == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the tables say; go test ./conf/keydoc -run DocumentedKeys -update writes it anew", file)
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEveryKeyHasAMeaning: each key that has an effect is explained, and nothing else is.
func TestEveryKeyHasAMeaning(t *testing.T) {
	left := map[string]bool{}
	for table, keys := range meanings() {
		for key := range keys {
			left[table+": "+key] = true
		}
	}
	for _, table := range conf.KeyTables() {
		for _, k := range table.Keys {
			if k.Why == "" && Meaning(table.Title, k.Name) == "" {
				t.Errorf("meanings.txt does not say what %s of %s means", k.Name, table.Title)
			}
			if k.Why == "" {
				delete(left, table.Title+": "+k.Name)
			}
		}
	}
	for key := range left {
		t.Errorf("meanings.txt explains %s, which has no effect or is not there", key)
	}
}

func keyTables() string {
	var b strings.Builder
	for _, table := range conf.KeyTables() {
		fmt.Fprintf(&b, "\n### %s\n\n| Key | Effect |\n|---|---|\n", table.Title)
		for _, k := range table.Keys {
			effect := "none: " + k.Why
			if k.Why == "" {
				effect = Meaning(table.Title, k.Name)
				if k.Words {
					effect += " By word, see below."
				}
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, strings.ReplaceAll(effect, "|", "\\|"))
		}
	}
	fmt.Fprintf(&b, "\n### Words of lists\n\n| Key | Words with an effect | Words without one, and why |\n|---|---|---|\n")
	for _, w := range conf.WordTables() {
		works := code(w.Works)
		if w.More {
			works += ", and those of [gpus.md](gpus.md)"
		}
		var vain []string
		for _, v := range w.Vain {
			vain = append(vain, code(v.Words)+": "+v.Why)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", w.Key, works, strings.Join(vain, "<br>"))
	}
	fmt.Fprintf(&b, "\n### Keys that are refused\n\n| Key | Help |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(conf.RemovedKeys())) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, conf.RemovedKeys()[name])
	}
	b.WriteByte('\n')
	return b.String()
}

func code(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}
