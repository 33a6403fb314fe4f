//go:build race

package hostile

// raced: the daemons are built with the detector of data races, too.
const raced = true

func init() { buildFlags = []string{"-race"} }
