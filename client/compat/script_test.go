package compat

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// line is one line of a script.
type line struct {
	verb    string // ">", "wait" or "waitfor"
	user    string // who types it; "": root
	name    string // the variable that the job's id is kept in
	command string // of ">" and "waitfor"
	words   []string
	again   int // how often the script has typed it by then
}

// heading is what stands above the answer to a line: the line, and the how manieth of several.
func (l line) heading() string {
	if l.again > 1 {
		return fmt.Sprintf("%s # %d", l.typed(), l.again)
	}
	return l.typed()
}

// typed is the line as the script has it.
func (l line) typed() string {
	switch {
	case l.verb != ">":
		return ""
	case l.name != "" && l.user != "":
		return l.user + ":" + l.name + " = " + l.command
	case l.name != "":
		return l.name + " = " + l.command
	case l.user != "":
		return l.user + "> " + l.command
	}
	return l.command
}

// script is one file of the corpus.
type script struct {
	name  string
	lines []line
	files []txtar.File
}

func parseScript(name string, data []byte) (*script, error) {
	archive := txtar.Parse(data)
	s := &script{name: name, files: archive.Files}
	typed := map[string]int{}
	for i, text := range strings.Split(string(archive.Comment), "\n") {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		typed[l.typed()]++
		l.again = typed[l.typed()]
		s.lines = append(s.lines, l)
	}
	return s, nil
}

func parseLine(text string) (line, error) {
	first, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case first == ">":
		return line{verb: ">", command: rest}, nil
	case strings.HasSuffix(first, ">"):
		return line{verb: ">", user: strings.TrimSuffix(first, ">"), command: rest}, nil
	case first == "wait":
		words := strings.Fields(rest)
		if len(words) < 2 {
			return line{}, fmt.Errorf("usage: wait $A STATE…")
		}
		return line{verb: "wait", words: words}, nil
	case first == "waitfor":
		re, command, ok := strings.Cut(rest, " :: ")
		if !ok {
			return line{}, fmt.Errorf("usage: waitfor REGEXP :: COMMAND")
		}
		return line{verb: "waitfor", words: []string{re}, command: command}, nil
	case strings.HasPrefix(rest, "= "):
		user, name, ok := strings.Cut(first, ":")
		if !ok {
			user, name = "", first
		}
		return line{verb: ">", user: user, name: name, command: strings.TrimPrefix(rest, "= ")}, nil
	}
	return line{}, fmt.Errorf("cannot read %q", text)
}

// answer is what a system said to one command.
type answer struct {
	command        string
	stdout, stderr string
	exit           int
	why            string // of a listed difference: the heading
}

// same tells whether two answers are the same to the byte.
func (a answer) same(b answer) bool {
	return eachTask(a.stdout) == eachTask(b.stdout) && eachTask(a.stderr) == eachTask(b.stderr) && a.exit == b.exit
}

// explains tells whether an answer is the complaint of the other one with an explanation behind it: Slurm's words come first, to the
// byte, and what is asked for, what there is and what would help follow on the same stream.
func (a answer) explains(b answer) bool {
	return a.exit == b.exit && a.stdout == b.stdout && b.stderr != "" && strings.HasPrefix(a.stderr, b.stderr)
}

// print writes an answer in the form of the kept files:
//
//	$ command
//	 1> a line of standard output
//	 1| a last line without a newline
//	 2> a line of standard error
//	 = exit code, when it is not 0
func (a answer) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "$ %s\n", a.command)
	if a.why != "" {
		fmt.Fprintf(b, " why: %s\n", a.why)
	}
	printStream(b, "1", a.stdout)
	printStream(b, "2", a.stderr)
	if a.exit != 0 {
		fmt.Fprintf(b, " = %d\n", a.exit)
	}
}

func printStream(b *bytes.Buffer, stream, text string) {
	for text != "" {
		l, rest, whole := strings.Cut(text, "\n")
		mark := ">"
		if !whole {
			mark = "|"
		}
		fmt.Fprintf(b, " %s%s %s\n", stream, mark, l)
		text = rest
	}
}

// readAnswers reads such a file; one that does not exist has none.
func readAnswers(path string) ([]answer, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []answer
	for n, text := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if command, ok := strings.CutPrefix(text, "$ "); ok {
			list = append(list, answer{command: command})
			continue
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%s:%d: an answer without a command", path, n+1)
		}
		if err := list[len(list)-1].read(text); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
	}
	return list, nil
}

func (a *answer) read(text string) (err error) {
	mark, rest, ok := strings.Cut(strings.TrimPrefix(text, " "), " ")
	if !ok {
		return fmt.Errorf("cannot read %q", text)
	}
	switch mark {
	case "1>":
		a.stdout += rest + "\n"
	case "1|":
		a.stdout += rest
	case "2>":
		a.stderr += rest + "\n"
	case "2|":
		a.stderr += rest
	case "why:":
		a.why = rest
	case "=":
		a.exit, err = strconv.Atoi(rest)
	default:
		return fmt.Errorf("cannot read %q", text)
	}
	return err
}
