package batchscript

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// absent are Slurm's commands for scripts that Sluice does not have.
var absent = []string{"sgather", "sh5util", "strigger"}

// Missing returns the first line of a script that calls one of them, and the command; 0 if none does. It skips text between "<<EOF"
// and "EOF".
func Missing(script []byte) (line int, command string) {
	if !slices.ContainsFunc(absent, func(name string) bool { return bytes.Contains(script, []byte(name)) }) {
		return 0, ""
	}
	end := "" // of a here-document
	for text := range bytes.Lines(script) {
		line++
		trimmed := strings.TrimSpace(string(text))
		switch {
		case end != "":
			if trimmed == end {
				end = ""
			}
			continue
		case strings.HasPrefix(trimmed, "#"):
			continue
		}
		end = hereDocument(text)
		for part := range strings.FieldsFuncSeq(trimmed, func(c rune) bool { return strings.ContainsRune(";&|(`", c) }) {
			if words := strings.Fields(part); len(words) > 0 && slices.Contains(absent, path.Base(words[0])) {
				return line, path.Base(words[0])
			}
		}
	}
	return 0, ""
}
