// gen writes package msg: for each message of ControllerAPI a plain struct with the name, fields and getters of protoc-gen-go's,
// and its encoding. It also writes the code in package pb that encodes selected fields of a record. It reads everything from
// package pb, so names cannot differ.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	messages := flag.String("msg", ".", "directory of package msg")
	calls := flag.String("client", "..", "directory of package client")
	encode := flag.String("encode", "../../proto/sluice/v1", "directory for encode.gen.go")
	source := flag.String("pb", "../../proto/sluice/v1", "directory of package pb")
	flag.Parse()
	files, err := generate(*source)
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		dir := *messages
		switch name {
		case callsFile:
			dir = *calls
		case encodeFile:
			dir = *encode
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
