// Package keydoc has a sentence for each key of slurm.conf and the files beside it, for docs/configuration.md and the manual pages.
// No program links it.
package keydoc

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed meanings.txt
var meaningsText string

// meanings are the texts by table and key.
var meanings = sync.OnceValue(func() map[string]map[string]string {
	all := map[string]map[string]string{}
	var table map[string]string
	for line := range strings.Lines(meaningsText) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "["); ok {
			table = map[string]string{}
			all[strings.TrimSuffix(title, "]")] = table
			continue
		}
		name, text, _ := strings.Cut(line, " ")
		table[name] = text
	}
	return all
})

// Meaning describes a key of a table (conf.KeyTable); "" for a key without effect.
func Meaning(table, key string) string { return meanings()[table][key] }
