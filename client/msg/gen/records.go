package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// partial are the messages of which a request can select fields, with the field of pb.Fields for each.
var partial = map[protoreflect.Name]string{"JobRecord": "Job", "JobSpec": "Spec", "NodeRecord": "Node"}

// reused are messages that are copied, one after the other, into the same place to encode them with additions.
var reused = map[protoreflect.Name]bool{"NodeRecord": true}

// records writes the code by which package pb encodes selected fields of a record and its nested messages, and copies records.
// protobuf's library does both by reflection and takes ten times as long.
func (w *writer) records() {
	b := w.file(encodeFile, "package pb\n\nimport \"github.com/sluice-hpc/sluice/proto/coding\"\n")
	seen := map[protoreflect.FullName]bool{}
	for _, m := range []protoreflect.ProtoMessage{&pb.JobRecord{}, &pb.NodeRecord{}} {
		w.record(b, m.ProtoReflect().Descriptor(), seen)
	}
}

func (w *writer) record(b *bytes.Buffer, d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) {
	if seen[d.FullName()] {
		return
	}
	seen[d.FullName()] = true
	name, fields := d.Name(), w.fields(d)
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.Number(), b.Number()) })
	set := partial[name]
	if set != "" {
		fmt.Fprintf(b,
			"\n// AppendFields appends the encoding of those fields of m that are in the sets.\nfunc (m *%s) AppendFields(b []byte, in "+
				"*Fields) []byte {\n", name)
	} else {
		fmt.Fprintf(b, "\nfunc (m *%s) appendTo(b []byte) []byte {\n", name)
	}
	b.WriteString("if m == nil {\nreturn b\n}\n")
	if slices.ContainsFunc(fields, func(f field) bool { return f.Message() != nil && !f.IsMap() }) {
		b.WriteString("at := 0\n")
	}
	for _, f := range fields {
		call := "appendTo(b)"
		if f.Message() != nil && partial[f.Message().Name()] != "" {
			call = "AppendFields(b, in)"
		}
		if set != "" {
			fmt.Fprintf(b, "if in.%s.Has(%d) {\n", set, f.Number())
		}
		w.append(b, f, call)
		if set != "" {
			b.WriteString("}\n")
		}
	}
	b.WriteString("return b\n}\n")
	fmt.Fprintf(b,
		"\n// Shallow is a copy of m, also of fields that this release does not know; what it points to is shared. Nil is as empty.\n"+
			"func (m *%s) Shallow() *%s {\nif m == nil {\nreturn &%s{}\n}\nreturn &%s{\n", name, name, name, name)
	for _, f := range fields {
		fmt.Fprintf(b, "%s: m.%s,\n", f.name, f.name)
	}
	// Keep fields written by a newer release when this one rewrites the record.
	b.WriteString("unknownFields: m.unknownFields,\n}\n}\n")
	if reused[name] {
		fmt.Fprintf(b, "\n// ShallowTo is Shallow for a dst that there is already; all of its fields are replaced.\n"+
			"func (m *%s) ShallowTo(dst *%s) {\n", name, name)
		for _, f := range fields {
			fmt.Fprintf(b, "dst.%s = m.%s\n", f.name, f.name)
		}
		b.WriteString("dst.unknownFields = m.unknownFields\n}\n")
	}
	for _, f := range fields {
		if f.Message() != nil && !f.IsMap() {
			w.record(b, f.Message(), seen)
		}
	}
}
