package batchscript

import (
	"bytes"
	"strings"
)

// Scripts of PBS and LSF: their directives are read as the options of sbatch that mean the same, as far as there are such (sbatch(1),
// --ignore-pbs). #SBATCH lines of the same script count more.

// Translate reads the #PBS and #BSUB lines before the first command. unread are the directives that have no counterpart, for a
// message.
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
func foreign(line, prefix string, translate func(option, value string) (words []string, ok bool), unread *[]string) (out []string) {
	rest := line[len(prefix):]
	if rest != "" && rest[0] != ' ' && rest[0] != '\t' { // "#PBSx" is a comment
		return nil
	}
	words, err := split(rest)
	if err != nil {
		*unread = append(*unread, strings.TrimSpace(line))
		return nil
	}
	for i := 0; i < len(words); i++ {
		option, value := words[i], ""
		if len(option) > 2 && option[0] == '-' && prefix == "#PBS" { // "-Nname"
			option, value = option[:2], option[2:]
		} else if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		done, ok := translate(option, value)
		if !ok {
			*unread = append(*unread, strings.TrimSpace(prefix+" "+option+" "+value))
		}
		out = append(out, done...)
	}
	return out
}

// pbsOption is one option of qsub.
func pbsOption(option, value string) (words []string, ok bool) {
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
	case "-l":
		return pbsResources(value)
	case "-W":
		return pbsAttribute(value)
	case "-j", "-S", "-k", "-c", "-I":
		return nil, option != "-I" // output is joined and shells are chosen by the script's first line anyway
	}
	return nil, false
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

// pbsResources reads "walltime=1:00:00,nodes=2:ppn=4,mem=4gb".
func pbsResources(value string) (words []string, ok bool) {
	for _, item := range strings.Split(value, ",") {
		key, v, _ := strings.Cut(item, "=")
		switch key {
		case "walltime":
			words = append(words, "--time="+v)
		case "mem":
			words = append(words, "--mem="+pbsSize(v))
		case "pmem":
			words = append(words, "--mem-per-cpu="+pbsSize(v))
		case "ncpus":
			words = append(words, "--mincpus="+v)
		case "file":
			words = append(words, "--tmp="+pbsSize(v))
		case "ngpus", "gpus":
			words = append(words, "--gres=gpu:"+v)
		case "nodes", "select":
			more, ok := pbsNodes(v)
			if !ok {
				return nil, false
			}
			words = append(words, more...)
		default:
			return nil, false
		}
	}
	return words, len(words) > 0
}

// pbsNodes reads "2:ppn=4:gpus=1" and "2:ncpus=4:mem=4gb:mpiprocs=4".
func pbsNodes(value string) (words []string, ok bool) {
	for i, part := range strings.Split(value, ":") {
		key, v, given := strings.Cut(part, "=")
		switch {
		case i == 0 && !given && strings.Trim(part, "0123456789") == "" && part != "":
			words = append(words, "--nodes="+part)
		case i == 0 && !given && part != "": // names of nodes
			words = append(words, "--nodelist="+strings.ReplaceAll(part, "+", ","))
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
	return words, true
}

// pbsSize turns "4gb" into "4G"; a number alone is bytes.
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
		return lower[:len(lower)-6] + "M" // bytes, near enough
	}
	return "1M"
}

// pbsAttribute reads "depend=afterok:12" and "umask=022".
func pbsAttribute(value string) (words []string, ok bool) {
	key, v, _ := strings.Cut(value, "=")
	switch key {
	case "depend":
		return []string{"--dependency=" + v}, v != ""
	case "umask", "stagein", "stageout", "group_list", "block":
		return nil, key == "umask"
	}
	return nil, false
}

// lsfOption is one option of bsub.
func lsfOption(option, value string) (words []string, ok bool) {
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
	case "-o":
		return as("output")
	case "-e":
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
		return []string{"--mem-per-cpu=" + value}, value != ""
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
	case "-H":
		return []string{"--hold"}, true
	case "-cwd":
		return as("chdir")
	case "-L":
		return nil, true
	}
	return nil, false
}
