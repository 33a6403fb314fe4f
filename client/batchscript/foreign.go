package batchscript

import (
	"bytes"
	"strings"
)

// Scripts of PBS and LSF: their directives are translated to the equivalent options of sbatch, where there is one (sbatch(1),
// --ignore-pbs). #SBATCH lines of the same script take precedence.

// Translate reads the #PBS and #BSUB lines before the first command. unread are directives without an equivalent, for a message.
func Translate(script []byte) (found []Directive, unread []string) {
	for line := 1; len(script) > 0; line++ {
		var text []byte
		text, script, _ = bytes.Cut(script, []byte("\n"))
		trimmed := strings.TrimRight(string(text), "\r")
		var words []string
		switch {
		case strings.HasPrefix(trimmed, "#PBS"):
			words = foreign(trimmed, "#PBS", pbsOption, &unread)
		case strings.HasPrefix(trimmed, "#BSUB"):
			words = foreign(trimmed, "#BSUB", lsfOption, &unread)
		case strings.TrimSpace(trimmed) != "" && trimmed[0] != '#':
			return found, unread
		}
		if len(words) > 0 {
			found = append(found, Directive{Line: line, Words: words})
		}
	}
	return found, unread
}

// foreign translates one line, which may have several options.
func foreign(line, prefix string, translate func(option, value string) (words, left []string), unread *[]string) (out []string) {
	rest := line[len(prefix):]
	if rest != "" && rest[0] != ' ' && rest[0] != '\t' { // "#PBSx" is a comment
		return nil
	}
	words, err := split(rest)
	if err != nil {
		*unread = append(*unread, strings.TrimSpace(line))
		return nil
	}
	flags := pbsFlags
	if prefix == "#BSUB" {
		flags = lsfFlags
	}
	for i := 0; i < len(words); i++ {
		option, value := cut(words[i], prefix)
		if value == "" && !strings.Contains(flags, option+" ") && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		done, left := translate(option, value)
		for _, item := range left {
			*unread = append(*unread, strings.TrimSpace(prefix+" "+item))
		}
		out = append(out, done...)
	}
	return out
}

// Options without a value: a following word is not their value.
const (
	pbsFlags = "-V -h -I -z -X "
	lsfFlags = "-x -B -N -H -r -rn -I -Ip -Is -K "
)

// lsfLong are options of bsub with several letters, which must not be read as a short option with a value attached.
const lsfLong = " -cwd -oo -eo -ee -rn -Ip -Is -sp -app -env -gpu -jsdl -Ep -ti -tty -wt -wa -hl -ul -Lp -rnc "

// cut separates an option from an attached value: "-W1:30", "-Nname".
func cut(word, prefix string) (option, value string) {
	if len(word) <= 2 || word[0] != '-' || prefix == "#BSUB" && strings.Contains(lsfLong, " "+word+" ") {
		return word, ""
	}
	return word[:2], word[2:]
}

// pbsOption translates one option of qsub; left are the parts without an equivalent.
func pbsOption(option, value string) (words, left []string) {
	if option == "-l" {
		return pbsResources(value)
	}
	words, ok := pbsPlain(option, value)
	if !ok {
		return nil, []string{strings.TrimSpace(option + " " + value)}
	}
	return words, nil
}

func pbsPlain(option, value string) (words []string, ok bool) {
	as := func(name string) ([]string, bool) { return []string{"--" + name + "=" + value}, value != "" }
	switch option {
	case "-N":
		return as("job-name")
	case "-A":
		return as("account")
	case "-q":
		queue, _, _ := strings.Cut(value, "@")
		return []string{"--partition=" + queue}, queue != ""
	case "-o":
		return as("output")
	case "-e":
		return as("error")
	case "-t", "-J":
		return as("array")
	case "-M":
		return as("mail-user")
	case "-m":
		return pbsMail(value)
	case "-V":
		return []string{"--export=ALL"}, true
	case "-v":
		return []string{"--export=ALL," + value}, value != ""
	case "-h":
		return []string{"--hold"}, true
	case "-r":
		if value == "n" {
			return []string{"--no-requeue"}, true
		}
		return []string{"--requeue"}, value == "y"
	case "-d", "-D":
		return as("chdir")
	case "-W":
		return pbsAttribute(value)
	case "-p":
		return as("nice") // as sbatch reads it
	case "-a":
		return pbsBegin(value)
	case "-j", "-S", "-k", "-c", "-z":
		return nil, true // output is joined by default, and the script's first line selects the shell
	}
	return nil, false
}

// pbsBegin reads the time of day of "-a 2230"; dates are not supported.
func pbsBegin(value string) (words []string, ok bool) {
	if len(value) != 4 || strings.Trim(value, "0123456789") != "" {
		return nil, false
	}
	return []string{"--begin=" + value[:2] + ":" + value[2:]}, true
}

func pbsMail(value string) (words []string, ok bool) {
	var events []string
	for _, c := range value {
		name, known := map[rune]string{'a': "FAIL", 'b': "BEGIN", 'e': "END", 'n': "NONE"}[c]
		if !known {
			return nil, false
		}
		events = append(events, name)
	}
	return []string{"--mail-type=" + strings.Join(events, ",")}, len(events) > 0
}

// pbsResources reads "walltime=1:00:00,nodes=2:ppn=4,mem=4gb". Items without an equivalent are returned in left; the others take
// effect.
func pbsResources(value string) (words, left []string) {
	for _, item := range strings.Split(value, ",") {
		key, v, _ := strings.Cut(item, "=")
		more, ok := []string(nil), true
		switch key {
		case "walltime", "cput", "pcput":
			more = []string{"--time=" + v}
		case "mem", "vmem":
			more = []string{"--mem=" + pbsSize(v)}
		case "pmem", "pvmem":
			more = []string{"--mem-per-cpu=" + pbsSize(v)}
		case "ncpus":
			more = []string{"--mincpus=" + v}
		case "procs":
			more = []string{"--ntasks=" + v}
		case "nice":
			more = []string{"--nice=" + v}
		case "file":
			more = []string{"--tmp=" + pbsSize(v)}
		case "ngpus", "gpus":
			more = []string{"--gres=gpu:" + v}
		case "place", "naccesspolicy":
			more, ok = pbsPlace(v)
		case "nodes", "select":
			more, ok = pbsNodes(v)
		default:
			ok = false
		}
		if !ok {
			left = append(left, "-l "+item)
		}
		words = append(words, more...)
	}
	return words, left
}

// pbsPlace reads "scatter:excl" and "singlejob".
func pbsPlace(value string) (words []string, ok bool) {
	ok = true
	for _, word := range strings.Split(value, ":") {
		switch word {
		case "excl", "exclhost", "singlejob":
			words = append(words, "--exclusive")
		case "free", "pack", "scatter", "shared":
		default:
			ok = false
		}
	}
	return words, ok
}

// pbsNodes reads "2:ppn=4:gpus=1", "2+ppn=4" (as sbatch does), "n1+n2" and "2:ncpus=4:mem=4gb:mpiprocs=4".
func pbsNodes(value string) (words []string, ok bool) {
	var names []string
	counted := false
	for i, part := range strings.FieldsFunc(value, func(c rune) bool { return c == ':' || c == '+' }) {
		key, v, given := strings.Cut(part, "=")
		number := !given && strings.Trim(part, "0123456789") == ""
		switch {
		case number && counted:
			return nil, false // nodes of different kinds
		case number && i == 0:
			words, counted = append(words, "--nodes="+part), true
		case !given && counted: // "2:bigmem"
			words = append(words, "--constraint="+part)
		case !given && !number:
			names = append(names, part)
		case key == "ppn" || key == "mpiprocs":
			words = append(words, "--ntasks-per-node="+v)
		case key == "ncpus":
			words = append(words, "--mincpus="+v)
		case key == "gpus" || key == "ngpus":
			words = append(words, "--gres=gpu:"+v)
		case key == "mem":
			words = append(words, "--mem="+pbsSize(v))
		default:
			return nil, false
		}
	}
	if len(names) > 0 {
		words = append([]string{"--nodelist=" + strings.Join(names, ",")}, words...)
	}
	return words, len(words) > 0
}

// pbsSize converts "4gb" to "4G"; a bare number is bytes.
func pbsSize(v string) string {
	lower := strings.TrimSuffix(strings.ToLower(v), "b")
	if lower == "" {
		return v
	}
	switch last := lower[len(lower)-1]; last {
	case 'k', 'm', 'g', 't':
		return lower[:len(lower)-1] + strings.ToUpper(string(last))
	}
	if len(lower) > 6 && strings.Trim(lower, "0123456789") == "" {
		return lower[:len(lower)-6] + "M" // bytes, approximately
	}
	return "1M"
}

// pbsAttribute reads "depend=afterok:12".
func pbsAttribute(value string) (words []string, ok bool) {
	key, v, _ := strings.Cut(value, "=")
	switch key {
	case "depend":
		return []string{"--dependency=" + v}, v != ""
	}
	return nil, false
}

// lsfOption translates one option of bsub; left are the parts without an equivalent.
func lsfOption(option, value string) (words, left []string) {
	words, ok := lsfPlain(option, value)
	if !ok {
		return nil, []string{strings.TrimSpace(option + " " + value)}
	}
	return words, nil
}

func lsfPlain(option, value string) (words []string, ok bool) {
	as := func(name string) ([]string, bool) { return []string{"--" + name + "=" + value}, value != "" }
	switch option {
	case "-J":
		name, tasks, array := strings.Cut(value, "[")
		words = []string{"--job-name=" + name}
		if array {
			tasks, limit, _ := strings.Cut(strings.TrimSuffix(tasks, "]"), "]")
			words = append(words, "--array="+tasks+limit)
		}
		return words, name != ""
	case "-o", "-oo":
		return as("output")
	case "-e", "-eo", "-ee":
		return as("error")
	case "-i":
		return as("input")
	case "-n":
		first, last, ranged := strings.Cut(value, ",")
		if ranged {
			first = last
		}
		return []string{"--ntasks=" + first}, first != ""
	case "-q":
		return as("partition")
	case "-P":
		return as("account")
	case "-W":
		limit, _, _ := strings.Cut(value, "/")
		if strings.Contains(limit, ":") {
			limit += ":00"
		}
		return []string{"--time=" + limit}, limit != ""
	case "-M":
		if strings.Trim(value, "0123456789") == "" && value != "" {
			value += "K" // LSF's default unit
		}
		return as("mem-per-cpu")
	case "-m":
		return []string{"--nodelist=" + strings.Join(strings.Fields(value), ",")}, value != ""
	case "-u":
		return as("mail-user")
	case "-B":
		return []string{"--mail-type=BEGIN"}, true
	case "-N":
		return []string{"--mail-type=END"}, true
	case "-x":
		return []string{"--exclusive"}, true
	case "-r":
		return []string{"--requeue"}, true
	case "-rn":
		return []string{"--no-requeue"}, true
	case "-H":
		return []string{"--hold"}, true
	case "-cwd":
		return as("chdir")
	case "-L":
		return nil, true
	}
	return nil, false
}
