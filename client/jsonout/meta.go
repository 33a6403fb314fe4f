package jsonout

import (
	"strings"

	"github.com/sluice-hpc/sluice/internal/version"
)

// Meta describes how a document was created.
type Meta struct {
	Cluster string
	Command []string // the command line, its name first
	Source  string   // terminal of the caller, "" if there is none
	User    string
	Group   string
	Storage string // AccountingStorageType, "" if unknown
}

// Fault is one element of "errors".
type Fault struct {
	Description string
	Number      int64
	Error       string
	Source      string
}

// Tail writes the end of every document: meta, errors, warnings. Since 23.11 they follow the data.
func (w *Writer) Tail(m Meta, faults []Fault, warnings []string) {
	w.Object("meta")
	w.Object("plugin")
	w.Str("type", "")
	w.Str("name", "")
	w.Str("data_parser", Parser)
	w.Str("accounting_storage", m.Storage)
	w.End()
	w.Object("client")
	w.Str("source", m.Source)
	w.Str("user", m.User)
	w.Str("group", m.Group)
	w.End()
	w.Strs("command", m.Command...)
	w.Object("slurm")
	w.Object("version")
	major, minor, micro := release()
	w.Str("major", major)
	w.Str("micro", micro)
	w.Str("minor", minor)
	w.End()
	w.Str("release", version.Slurm)
	w.Str("cluster", m.Cluster)
	w.End()
	w.End()
	w.List("errors")
	for _, f := range faults {
		w.Object("")
		w.Str("description", f.Description)
		w.Int("error_number", f.Number)
		w.Str("error", f.Error)
		w.Str("source", f.Source)
		w.End()
	}
	w.End()
	w.List("warnings")
	for _, text := range warnings {
		w.Object("")
		w.Str("description", text)
		w.Str("source", "")
		w.End()
	}
	w.End()
}

// release splits "25.11.0".
func release() (major, minor, micro string) {
	major, rest, _ := strings.Cut(version.Slurm, ".")
	minor, micro, _ = strings.Cut(rest, ".")
	return major, minor, micro
}

// CheckParser reads the argument of --json and --yaml: "" or the name of the only parser, with or without its prefix, and with
// flags that have no effect here. ok is false for any other.
func CheckParser(arg string) (ok bool) {
	name, flags, _ := strings.Cut(arg, "+")
	name = strings.TrimPrefix(name, "data_parser/")
	if name != "" && name != "v0.0.42" && !strings.EqualFold(name, "latest") {
		return false
	}
	for _, f := range strings.Split(flags, "+") {
		if f != "" && !strings.EqualFold(f, "fast") && !strings.EqualFold(f, "none") {
			return false
		}
	}
	return true
}
