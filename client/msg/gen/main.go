// gen writes package msg: for each message of the ControllerAPI a plain struct with the same name, fields and getters as the
// one that protoc-gen-go makes, and its encoding. What it needs to know it reads from package pb, so that names cannot differ.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	messages := flag.String("msg", ".", "folder of package msg")
	calls := flag.String("client", "..", "folder of package client")
	source := flag.String("pb", "../../proto/sluice/v1", "folder of package pb")
	flag.Parse()
	files, err := generate(*source)
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		dir := *messages
		if name == callsFile {
			dir = *calls
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
