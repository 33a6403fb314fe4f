package passwd

import (
	"fmt"
	"os"
	"strings"
	"unicode"
)

// ExpandHome expands a tilde at the beginning of a path as a shell would, for paths that no shell has processed: in an #SBATCH
// line, after an equals sign, in a file. "~/x" is in $HOME, else in the user's home of passwd(5); "~name/x" is in that user's.
// Other paths are unchanged.
func ExpandHome(path string) (string, error) {
	if !strings.HasPrefix(path, "~") {
		return path, nil
	}
	who, rest, _ := strings.Cut(path[1:], "/")
	if strings.Contains(path, "/") {
		rest = "/" + rest
	}
	var home string
	if who == "" {
		if home = os.Getenv("HOME"); home == "" {
			home = Self().Home
		}
	} else if a, ok := User(who); ok && a.Name == who {
		home = a.Home
	} else {
		return "", fmt.Errorf("there is no user %s; write ./%s if the name begins with a tilde", shown(who), shown(path))
	}
	if !strings.HasPrefix(home, "/") {
		return "", fmt.Errorf("the home of %q is not known; write an absolute path instead of %s", who, shown(path))
	}
	return strings.TrimRight(home, "/") + rest, nil
}

// shown prepares a path for a message: invisible characters and those that move the cursor become question marks.
func shown(path string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, path)
}
