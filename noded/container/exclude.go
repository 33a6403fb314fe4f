package container

import (
	"fmt"
	"regexp"
	"slices"
)

// exclude leaves out the variables, as NAME=VALUE, in which the extended regular expression of a key of oci.conf(5) is found. An empty one
// is found in none. The commands that read oci.conf do not look at it: they would all have to know regular expressions.
func exclude(key, expression string, env []string) ([]string, error) {
	if expression == "" {
		return env, nil
	}
	re, err := regexp.CompilePOSIX(expression)
	if err != nil {
		return nil, fmt.Errorf("%s of oci.conf: %w", key, err)
	}
	return slices.DeleteFunc(slices.Clone(env), re.MatchString), nil
}
