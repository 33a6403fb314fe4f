package convert

import (
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
)

// Gres reads the generic resources of an admitted specification, "gres/gpu:a100:2,gres/shard:4".
func Gres(text string) []tres.Gres {
	list, _ := ReadGres(text) // admission has refused a text with an error
	return list
}

// ReadGres reads generic resources. Its errors quote them without "gres/", as users type them.
func ReadGres(text string) ([]tres.Gres, error) {
	var bare []string
	for part := range strings.SplitSeq(text, ",") {
		bare = append(bare, strings.TrimPrefix(part, "gres/"))
	}
	return tres.ParseGres(strings.Join(bare, ","))
}
