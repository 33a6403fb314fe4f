package convert

import (
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
)

// Gres reads what a specification has of generic resources, "gres/gpu:a100:2,gres/shard:4", with "gres:" as older versions write it.
// What cannot be read is empty: Check has refused it.
func Gres(text string) []tres.Gres {
	if text == "" {
		return nil
	}
	list, _ := ReadGres(text)
	return list
}

// ReadGres is Gres that says what is wrong with the text.
func ReadGres(text string) ([]tres.Gres, error) {
	var bare []string
	for part := range strings.SplitSeq(text, ",") {
		bare = append(bare, strings.TrimPrefix(strings.TrimPrefix(part, "gres/"), "gres:"))
	}
	return tres.ParseGres(strings.Join(bare, ","))
}
