// gen writes client/format/needs.gen.go: which fields of a record each column of a view reads, so that a command can ask the
// controller for these alone. Nobody keeps that list: gen follows a column's row in its table through the functions that it names,
// and takes every getter that it comes across.
//
// What depends on a value is taken as read, whatever the value: too much costs a few bytes, too little would show a wrong view. A row
// that gen cannot read asks for everything. Records must be read by name, not by reflection.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", "../..", "folder of package client")
	out := flag.String("out", "", "folder for the file (default: DIR/format)")
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
