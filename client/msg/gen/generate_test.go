package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	files, err := generate("../../../proto/sluice/v1")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		path := filepath.Join("..", name)
		switch name {
		case callsFile:
			path = filepath.Join("../..", name)
		case encodeFile:
			path = filepath.Join("../../../proto/sluice/v1", name)
		}
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what the messages give (%v): run make generate", path, err)
		}
	}
}
