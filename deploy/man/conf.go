package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/keydoc"
)

// confPages returns the pages of the configuration files.
func confPages() []*page {
	tables := map[string]conf.KeyTable{}
	for _, t := range conf.KeyTables() {
		tables[t.Title] = t
	}
	slurm := begin("sluice-slurm.conf", "slurm.conf", 5, "configuration of a Sluice cluster", "slurm.conf")
	slurm.own("DESCRIPTION", false)
	slurm.section1("KEYS")
	slurm.keys(tables["slurm.conf"])
	for _, t := range []string{"NodeName lines", "PartitionName lines", "NodeSet lines", "DownNodes lines"} {
		slurm.section1(t)
		slurm.keys(tables[t])
	}
	slurm.words()
	slurm.section1("KEYS WITHOUT EFFECT")
	slurm.roff.WriteString("They are accepted; " + bold("sluice conf check") + " lists those that a file has.\n")
	for _, t := range []string{"slurm.conf", "NodeName lines", "PartitionName lines"} {
		slurm.vain(tables[t])
	}
	slurm.section1("KEYS THAT ARE REFUSED")
	for _, name := range slices.Sorted(maps.Keys(conf.RemovedKeys())) {
		slurm.term(bold(name), escape(upper(conf.RemovedKeys()[name])+"."))
	}
	slurm.rest(last...)
	slurm.common("FILES")
	slurm.seeAlso("sluice(1)")
	pages := []*page{slurm}
	for _, f := range []struct{ name, line, table string }{
		{"gres.conf", "devices of the nodes of a Sluice cluster", "gres.conf"},
		{"cgroup.conf", "what jobs of a Sluice cluster are held to", "cgroup.conf"},
		{"job_container.conf", "private directories of jobs of a Sluice cluster", "job_container.conf"},
		{"oci.conf", "how OCI bundles are run on a Sluice cluster", "oci.conf"},
		{"topology.conf", "switches of a Sluice cluster", "topology.conf, SwitchName lines"},
	} {
		p := begin("sluice-"+f.name, f.name, 5, f.line, f.name)
		p.own("DESCRIPTION", false)
		p.section1("KEYS")
		p.keys(tables[f.table])
		if slices.ContainsFunc(tables[f.table].Keys, func(k conf.KeyRow) bool { return k.Why != "" }) {
			p.section1("KEYS WITHOUT EFFECT")
			p.vain(tables[f.table])
		}
		p.rest(last...)
		p.common("FILES")
		p.seeAlso("sluice-slurm.conf(5)")
		pages = append(pages, p)
	}
	node := begin("sluice-node.conf", "", 5, "what a node of a Sluice cluster lets be done on it", "node.conf")
	node.rest(last...)
	node.common("FILES")
	node.seeAlso("sluice-noded(8)")
	return append(pages, node)
}

// keys writes the keys that have an effect.
func (p *page) keys(t conf.KeyTable) {
	for _, k := range t.Keys {
		if k.Why != "" {
			continue
		}
		meaning := escape(keydoc.Meaning(t.Title, k.Name))
		if k.Words {
			meaning += "\nSee WORDS."
		}
		if k.Default != "" && k.Default != "(null)" {
			meaning += "\nDefault: " + escape(k.Default) + "."
		}
		p.term(bold(k.Name), meaning)
	}
}

// vain writes the keys that have no effect, and why.
func (p *page) vain(t conf.KeyTable) {
	for _, k := range t.Keys {
		if k.Why != "" {
			p.term(bold(k.Name), escape(upper(k.Why)+"."))
		}
	}
}

// words writes the words that lists may contain.
func (p *page) words() {
	p.section1("WORDS")
	p.roff.WriteString("Words that are not listed have no effect either; a newer Slurm may know them.\n")
	for _, w := range conf.WordTables() {
		p.section2(w.Key)
		works := strings.Join(w.Works, ", ")
		if w.More {
			works += ", and those of docs/gpus.md"
		}
		p.term("With an effect", escape(works+"."))
		for _, v := range w.Vain {
			p.term(escape("Without: "+v.Why), escape(strings.Join(v.Words, ", ")+"."))
		}
	}
}

// upper capitalises a sentence, unless its first word is a name such as slurm.conf.
func upper(s string) string {
	if word, _, _ := strings.Cut(s, " "); strings.ContainsAny(strings.TrimRight(word, ".,:;"), "./_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
