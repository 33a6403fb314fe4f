package conf

import (
	"maps"
	"slices"
	"strings"
)

// KeyTable holds the keys of one file or kind of line, for the documentation.
type KeyTable struct {
	Title string // "slurm.conf", "NodeName lines", …
	Keys  []KeyRow
}

// KeyRow is one key.
type KeyRow struct {
	Name    string
	Why     string // why it has no effect; "" if it has one
	Words   bool   // its value is a list of words: see WordTables
	Default string // as in scontrol show config; "" if not shown there
}

// KeyTables returns all keys that are read, in the order of the documentation.
func KeyTables() []KeyTable {
	values := map[string]string{}
	for _, p := range defaults().Pairs(Runtime{}) {
		values[strings.ToLower(p.Key)] = p.Value
	}
	slurm := KeyTable{Title: "slurm.conf"}
	for lower, k := range keys() {
		_, list := wordTables()[lower]
		slurm.Keys = append(slurm.Keys, KeyRow{Name: k.name, Why: k.why, Words: list && k.why == "", Default: values[lower]})
	}
	return []KeyTable{sorted(slurm), rowsOf("NodeName lines", nodeKeys()), rowsOf("PartitionName lines", partitionKeys()),
		rowsOf("NodeSet lines", nodeSetKeys()), rowsOf("DownNodes lines", downNodesKeys()), rowsOf("cgroup.conf", cgroupKeys()),
		rowsOf("gres.conf", gresKeys()), rowsOf("job_container.conf", jobContainerKeys()),
		rowsOf("oci.conf", ociKeys()),
		rowsOf("topology.conf, SwitchName lines", switchKeys())}
}

func rowsOf[T any](title string, keys map[string]recordKey[T]) KeyTable {
	t := KeyTable{Title: title}
	for _, k := range keys {
		t.Keys = append(t.Keys, KeyRow{Name: k.name, Why: k.why})
	}
	return sorted(t)
}

func sorted(t KeyTable) KeyTable {
	slices.SortFunc(t.Keys, func(a, b KeyRow) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return t
}

// WordTable is a key whose value is a list of words: those with an effect and, by reason, those without.
type WordTable struct {
	Key   string
	Works []string
	More  bool // docs/gpus.md lists further words with an effect
	Vain  []VainWords
}

// VainWords are words without effect, and the reason.
type VainWords struct {
	Why   string
	Words []string
}

// WordTables returns the tables of all keys with words, by name.
func WordTables() (tables []WordTable) {
	fields := func(s string) []string {
		return slices.SortedFunc(slices.Values(strings.Fields(s)), func(a, b string) int {
			return strings.Compare(strings.ToLower(a), strings.ToLower(b))
		})
	}
	for _, lower := range slices.Sorted(maps.Keys(wordTables())) {
		w := wordTables()[lower]
		t := WordTable{Key: keys()[lower].name, Works: fields(w.works), More: w.value != nil}
		for _, why := range slices.Sorted(maps.Keys(w.vain)) {
			t.Vain = append(t.Vain, VainWords{why, fields(w.vain[why])})
		}
		tables = append(tables, t)
	}
	return tables
}

// RemovedKeys returns the keys that are rejected, in lower case, with their replacement.
func RemovedKeys() map[string]string { return removed() }
