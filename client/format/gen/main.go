// gen writes client/format/needs.gen.go: the fields of a record that each column of a view reads, so that a command can request
// only these. It follows a column's row through the functions that it refers to, and lists every getter that it finds.
//
// A getter behind a condition counts as read: an unneeded field costs a few bytes, a missing one would show a wrong view. A row
// that gen cannot follow requests all fields. Records must be read by name, not by reflection.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", "../..", "directory of package client")
	out := flag.String("out", "", "directory for the file (default: DIR/format)")
	flag.Parse()
	text, err := generate(*dir)
	if err != nil {
		log.Fatal(err)
	}
	if *out == "" {
		*out = filepath.Join(*dir, "format")
	}
	if err := os.WriteFile(filepath.Join(*out, file), text, 0o644); err != nil {
		log.Fatal(err)
	}
}
