package conf

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew from the tables")

// TestDocumentedKeys holds docs/configuration.md against the tables: every key, every word, and what comes of it. With -update it is
// written anew.
func TestDocumentedKeys(t *testing.T) {
	const file, begin, end = "../docs/configuration.md", "<!-- keys: go test ./conf -run DocumentedKeys -update -->\n",
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
		t.Fatalf("%s is not what the tables say; go test ./conf -run DocumentedKeys -update writes it anew", file)
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func keyTables() string {
	var b strings.Builder
	section := func(title string, whys map[string]string) {
		fmt.Fprintf(&b, "\n### %s\n\n| Key | Effect |\n|---|---|\n", title)
		for _, name := range slices.SortedFunc(maps.Keys(whys), byLower) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, effectOf(title, name, whys[name]))
		}
	}
	slurm := map[string]string{}
	for _, k := range keys() {
		slurm[k.name] = k.why
	}
	section("slurm.conf", slurm)
	section("NodeName lines", whysOf(nodeKeys()))
	section("PartitionName lines", whysOf(partitionKeys()))
	section("NodeSet lines", whysOf(nodeSetKeys()))
	section("DownNodes lines", whysOf(downNodesKeys()))
	section("cgroup.conf", whysOf(cgroupKeys()))
	section("gres.conf", whysOf(gresKeys()))
	section("job_container.conf", whysOf(jobContainerKeys()))
	section("topology.conf, SwitchName lines", whysOf(switchKeys()))

	fmt.Fprintf(&b, "\n### Words of lists\n\n| Key | Words with an effect | Words without one, and why |\n|---|---|---|\n")
	for _, lower := range slices.Sorted(maps.Keys(wordTables())) {
		table := wordTables()[lower]
		works := code(slices.SortedFunc(slices.Values(strings.Fields(table.works)), byLower))
		if table.value != nil {
			works += ", and those of [gpus.md](gpus.md)"
		}
		var vain []string
		for _, why := range slices.Sorted(maps.Keys(table.vain)) {
			vain = append(vain, code(slices.SortedFunc(slices.Values(strings.Fields(table.vain[why])), byLower))+": "+why)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", keys()[lower].name, works, strings.Join(vain, "<br>"))
	}

	fmt.Fprintf(&b, "\n### Keys that are refused\n\n| Key | Help |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(removed())) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, removed()[name])
	}
	b.WriteByte('\n')
	return b.String()
}

func effectOf(title, name, why string) string {
	_, list := wordTables()[strings.ToLower(name)]
	switch {
	case why != "":
		return "none: " + why
	case title == "slurm.conf" && list:
		return "by word, see below"
	}
	return "yes"
}

func whysOf[T any](keys map[string]recordKey[T]) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		out[k.name] = k.why
	}
	return out
}

func byLower(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }

func code(words []string) string {
	for i, w := range words {
		words[i] = "`" + w + "`"
	}
	return strings.Join(words, ", ")
}
