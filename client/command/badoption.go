package command

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// BadOption says in our words what package flag says in Go's, which has one hyphen before an option and no word for what it should be.
func BadOption(f *flag.FlagSet, err error) string {
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		return "unknown option --" + name
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return "option --" + name + " needs an argument"
	}
	var name, value string
	for _, form := range []string{"invalid value %q for flag -%s", "invalid boolean value %q for -%s"} {
		if n, _ := fmt.Sscanf(err.Error(), form, &value, &name); n < 2 {
			continue
		}
		name = strings.TrimSuffix(name, ":")
		want := "another value"
		switch v, _ := f.Lookup(name).Value.(flag.Getter); v.Get().(type) {
		case int:
			want = "a whole number"
		case bool:
			want = "true or false"
		case time.Duration:
			want = "a time such as 30s or 2m"
		}
		return fmt.Sprintf("--%s=%s: expected %s", name, value, want)
	}
	return err.Error()
}
