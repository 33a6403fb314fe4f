package main

import (
	"bytes"
	"os"
	"testing"
)

func TestFileIsUpToDate(t *testing.T) {
	want, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../" + file)
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what the tables give (%v): run make generate", file, err)
	}
}
