// Package opt reads command lines as Slurm's commands do. Scan is getopt_long(3): abbreviations, clusters of letters, "-n4",
// "-n 4", "--mem=1G", "--mem 1G", "--". The options that describe a job are in client/joboptions.
package opt

import "strings"

// Arg says whether an option takes an argument.
type Arg uint8

const (
	NoArg    Arg = iota
	Required     // "--time 5", "--time=5", "-t 5", "-t5"
	Optional     // "--exclusive", "--exclusive=user", "-k", "-koff"
)

// Name is the spelling of an option. If Canon is set, the row is an alias of the option with that long name.
type Name struct {
	Long  string
	Short byte
	Arg   Arg
	Canon string
}

// Canonical returns the long name of the option itself, also for an alias.
func (n *Name) Canonical() string {
	if n.Canon != "" {
		return n.Canon
	}
	return n.Long
}

// inFull reports whether the option cannot be abbreviated. Those of Pyxis cannot, so that they do not make Slurm's own
// abbreviations ambiguous.
func (n *Name) inFull() bool {
	return strings.HasPrefix(strings.TrimPrefix(n.Long, "no-"), "container-")
}

// Hit is one option found on a command line: an index into the names given to Scan.
type Hit struct {
	Index int
	Value string
	Given bool // an argument was given; false only for NoArg and Optional
	// Misread is the probable intention if the word looks like a long option that lacks a hyphen.
	Misread string
}

// UsageError is an invalid command line. Its text is getopt's, without the command's name in front.
type UsageError struct {
	Text string
	Hint string // the correct spelling, "" if nothing is close
}

func (e *UsageError) Error() string { return e.Text }

// Scan reads argv (without the command's name) against names. With permute, options may follow other words, as in scancel and
// squeue; without, the first word that is not an option ends them, as in sbatch, where the script's own options follow. The error
// is a *UsageError.
func Scan(names []Name, argv []string, permute bool) (hits []Hit, rest []string, err error) {
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--":
			return hits, append(rest, argv[i+1:]...), nil
		case strings.HasPrefix(word, "--"):
			hit, used, err := long(names, word[2:], argv[i+1:])
			if err != nil {
				return hits, rest, err
			}
			hits = append(hits, hit)
			i += used
		case len(word) > 1 && word[0] == '-':
			found, used, err := letters(names, word[1:], argv[i+1:])
			if err != nil {
				err.Hint = oneHyphen(names, word)
				return hits, rest, err
			}
			if len(found) < len(word)-1 { // otherwise all letters are options, as in "squeue -all"
				found[0].Misread = oneHyphen(names, word)
			}
			hits = append(hits, found...)
			i += used
		case permute:
			rest = append(rest, word)
		default:
			return hits, append(rest, argv[i:]...), nil
		}
	}
	return hits, rest, nil
}

// long reads "name" or "name=value"; used is the number of following words that it consumes.
func long(names []Name, word string, after []string) (hit Hit, used int, err error) {
	name, value, given := strings.Cut(word, "=")
	index, err := find(names, name, word)
	if err != nil {
		return hit, 0, err
	}
	row := &names[index]
	switch {
	case given && row.Arg == NoArg:
		return hit, 0, &UsageError{Text: "option '--" + row.Long + "' doesn't allow an argument"}
	case !given && row.Arg == Required:
		if len(after) == 0 {
			return hit, 0, &UsageError{Text: "option '--" + row.Long + "' requires an argument"}
		}
		return Hit{Index: index, Value: after[0], Given: true}, 1, nil
	}
	return Hit{Index: index, Value: value, Given: given}, 0, nil
}

// find looks up a long name or an unambiguous prefix; two names of the same option are not ambiguous.
func find(names []Name, name, word string) (int, error) {
	index, ambiguous := -1, false
	for i := range names {
		if names[i].Long == "" || !strings.HasPrefix(names[i].Long, name) {
			continue
		}
		if names[i].Long == name {
			return i, nil
		}
		if names[i].inFull() {
			continue
		}
		if index >= 0 && names[i].Canonical() != names[index].Canonical() {
			ambiguous = true
		}
		if index < 0 {
			index = i
		}
	}
	switch {
	case index < 0:
		return 0, &UsageError{Text: "unrecognized option '--" + word + "'", Hint: closest(names, name)}
	case ambiguous:
		return 0, &UsageError{Text: "option '--" + word + "' is ambiguous; possibilities:" + possibilities(names, name)}
	}
	return index, nil
}

func possibilities(names []Name, prefix string) string {
	var b strings.Builder
	for i := range names {
		if names[i].Long != "" && strings.HasPrefix(names[i].Long, prefix) && !names[i].inFull() {
			b.WriteString(" '--" + names[i].Long + "'")
		}
	}
	return b.String()
}

// letters reads a cluster such as "Hvn4"; used is the number of following words that it consumes.
func letters(names []Name, cluster string, after []string) (hits []Hit, used int, err *UsageError) {
	for k := 0; k < len(cluster); k++ {
		index := byLetter(names, cluster[k])
		if index < 0 {
			return nil, 0, &UsageError{Text: "invalid option -- '" + cluster[k:k+1] + "'"}
		}
		tail := cluster[k+1:]
		switch {
		case names[index].Arg == NoArg:
			hits = append(hits, Hit{Index: index})
			continue
		case tail != "":
			return append(hits, Hit{Index: index, Value: tail, Given: true}), 0, nil
		case names[index].Arg == Optional:
			return append(hits, Hit{Index: index}), 0, nil
		case len(after) == 0:
			return nil, 0, &UsageError{Text: "option requires an argument -- '" + cluster[k:k+1] + "'"}
		}
		return append(hits, Hit{Index: index, Value: after[0], Given: true}), 1, nil
	}
	return hits, 0, nil
}

func byLetter(names []Name, c byte) int {
	for i := range names {
		if names[i].Short == c {
			return i
		}
	}
	return -1
}

// closest returns the option that was probably meant by a mistyped name.
func closest(names []Name, name string) string {
	best, distance := "", 3
	for i := range names {
		if names[i].Long == "" || len(name) < 3 {
			continue
		}
		if d := edits(name, names[i].Long, distance); d < distance {
			best, distance = names[i].Long, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean --" + best + "?"
}

// Nearest returns the word of a list that was probably meant by a mistyped one, in any case; "" if none is close.
func Nearest(words []string, word string) string {
	best, distance := "", 3
	if len(word) < 3 {
		return ""
	}
	for _, w := range words {
		if d := edits(strings.ToLower(word), strings.ToLower(w), distance); d < distance {
			best, distance = w, d
		}
	}
	return best
}

// edits is the number of insertions, deletions, replacements and transpositions between a and b, or limit if it is at least that.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last[j-1]
			if a[i-1] != b[j-1] {
				cost++
			}
			row[j] = min(cost, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}
