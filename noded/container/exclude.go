package container

import (
	"fmt"
	"regexp"
	"slices"
)

// exclude removes the variables, as NAME=VALUE, that match the extended regular expression of a key of oci.conf(5). An empty
// expression matches none. Only here is it parsed: the commands that read oci.conf would all have to link regular expressions.
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
