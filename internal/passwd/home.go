package passwd

import (
	"fmt"
	"os"
	"strings"
	"unicode"
)

// ExpandHome replaces a tilde at the beginning of a path as a shell would, for paths that no shell has seen: in a line of #SBATCH,
// behind an equals sign, in a file. "~/x" is in $HOME, else in the user's home of passwd(5); "~name/x" in that user's. Other paths
// stay as they are.
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

// shown is a path for a message: what has no shape, or moves the cursor, is a question mark.
func shown(path string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, path)
}
