package srun

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/client/opt"
)

// program is a line of the --multi-prog file: ranks and their command.
type program struct {
	tasks []uint32
	argv  []string
}

// mostProgram bounds the --multi-prog file, in bytes.
const mostProgram = 4 << 20

// readPrograms reads the --multi-prog file (srun(1), MULTIPLE PROGRAM CONFIGURATION) for a step with the given number of tasks.
func readPrograms(dir, path string, more []string, tasks uint32) ([]program, error) {
	data, err := os.ReadFile(absolute(dir, path))
	if err != nil {
		what := "Could not open multi_prog config file "
		if errors.Is(err, syscall.EISDIR) {
			what = "Error reading multi_prog config file "
		}
		return nil, &opt.ValueError{Lines: []string{what + path}, Hint: err.Error(), Exit: 1}
	}
	if len(data) > mostProgram {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", path, len(data), mostProgram)
	}
	return parsePrograms(path, data, more, tasks)
}

func parsePrograms(path string, data []byte, more []string, tasks uint32) ([]program, error) {
	owner := make([]int, tasks) // each rank's line
	argv := make([][]string, tasks)
	n := 0
	var line []byte
	for raw := range bytes.Lines(data) {
		n++
		raw = bytes.TrimRight(raw, "\r\n")
		if len(line) == 0 && bytes.HasPrefix(raw, []byte("#")) {
			continue
		}
		if rest, ok := bytes.CutSuffix(raw, []byte(`\`)); ok { // continued on the next line
			line = append(line, rest...)
			continue
		}
		line = append(line, raw...)
		if err := programLine(path, n, string(line), more, owner, argv); err != nil {
			return nil, err
		}
		line = line[:0]
	}
	if len(line) > 0 {
		if err := programLine(path, n, string(line), more, owner, argv); err != nil {
			return nil, err
		}
	}
	return gathered(path, owner, argv)
}

func programLine(path string, n int, line string, more []string, owner []int, argv [][]string) error {
	ranks, command, _ := strings.Cut(strings.TrimSpace(line), " ")
	if i := strings.IndexByte(ranks, '\t'); i >= 0 {
		ranks, command = ranks[:i], ranks[i+1:]+" "+command
	}
	if ranks == "" {
		return nil
	}
	where := fmt.Sprintf("line %d of %s", n, path)
	invalid := func(first, hint string) error {
		e := &opt.ValueError{Lines: []string{fmt.Sprintf("Line %d of configuration file %s invalid", n, path)}, Exit: 1, Hint: hint}
		if first != "" {
			e.Lines = append([]string{first}, e.Lines...)
		}
		return e
	}
	list, err := rankList(ranks, owner)
	if err != nil {
		return invalid(err.Error(), "write ranks as numbers and ranges, as in 0,4-6, or * for the remaining ranks")
	}
	words := splitWords(command)
	if len(words) == 0 {
		return invalid("", where+" names no program")
	}
	for _, m := range more {
		words = append(words, []word{{m, true}})
	}
	for offset, rank := range list {
		if ranks == "*" { // its offsets count all tasks
			offset = int(rank)
		}
		if owner[rank] != 0 {
			return invalid(fmt.Sprintf("Duplicate record for task %d", rank), fmt.Sprintf("it is also in line %d", owner[rank]))
		}
		owner[rank], argv[rank] = n, expanded(words, rank, offset)
	}
	return nil
}

// rankError is Slurm's message about invalid task numbers.
type rankError string

func (e rankError) Error() string { return string(e) }

// rankList reads "0,4-6", or "*" for all ranks that no earlier line has.
func rankList(s string, owner []int) ([]uint32, error) {
	var list []uint32
	if s == "*" {
		for rank, line := range owner {
			if line == 0 {
				list = append(list, uint32(rank))
			}
		}
		return list, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		a, b, ranged := strings.Cut(item, "-")
		low, err := strconv.ParseUint(a, 10, 32)
		if err != nil {
			return nil, rankError("Invalid task range specification (" + s + ")")
		}
		high := low
		if ranged {
			if high, err = strconv.ParseUint(b, 10, 32); err != nil || high < low {
				return nil, rankError("Invalid task range specification (" + s + ")")
			}
		}
		if high >= uint64(len(owner)) {
			return nil, rankError(fmt.Sprintf("Invalid task id, %d >= ntasks", high))
		}
		for rank := low; rank <= high; rank++ {
			list = append(list, uint32(rank))
		}
	}
	return list, nil
}

// word is a part of a command line. Text in single quotes is taken literally: blanks, %t and %o.
type word struct {
	text   string
	quoted bool
}

// splitWords splits a command line at blanks. As in Slurm, double quotes have no meaning.
func splitWords(s string) (words [][]word) {
	var now []word
	var text []byte
	flush := func(quoted bool) {
		if len(text) > 0 || quoted {
			now = append(now, word{string(text), quoted})
		}
		text = text[:0]
	}
	quote := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\'':
			flush(quote)
			quote = !quote
		case c == '\\' && !quote && i+1 < len(s): // the next character is literal
			flush(false)
			i++
			now = append(now, word{s[i : i+1], true})
		case !quote && (c == ' ' || c == '\t'):
			if flush(false); len(now) > 0 {
				words = append(words, now)
			}
			now = nil
		default:
			text = append(text, c)
		}
	}
	if flush(quote); len(now) > 0 {
		words = append(words, now)
	}
	return words
}

// expanded replaces %t by the rank and %o by its offset within its line.
func expanded(words [][]word, rank uint32, offset int) []string {
	r := strings.NewReplacer("%t", strconv.Itoa(int(rank)), "%o", strconv.Itoa(offset))
	out := make([]string, len(words))
	for i, parts := range words {
		for _, w := range parts {
			if w.quoted {
				out[i] += w.text
			} else {
				out[i] += r.Replace(w.text)
			}
		}
	}
	return out
}

// gathered collects the programs and rejects ranks without one.
func gathered(path string, owner []int, argv [][]string) ([]program, error) {
	var programs []program
	for rank := range owner {
		if owner[rank] == 0 {
			return nil, &opt.ValueError{Lines: []string{fmt.Sprintf(
				"Configuration file %s invalid, no record for task id %d", path, rank)}, Exit: 1,
				Hint: "each task needs a line; * stands for all that have none"}
		}
		programs = append(programs, program{tasks: []uint32{uint32(rank)}, argv: argv[rank]})
	}
	return programs, nil
}
