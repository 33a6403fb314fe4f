package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxFakes bounds the GPUs of one simulated machine.
const maxFakes = 64

// SpecItem is one kind of GPU of a simulated machine.
type SpecItem struct {
	Model string // key of models
	Count int
	MIG   bool // its MIG mode is on
}

// ParseSpec parses sluice-noded --gpus: "a100:8", "titan_xp:1,titan_v:1", "h100:4:mig" (MIG mode on); "none" is no GPU.
func ParseSpec(text string) ([]SpecItem, error) {
	if text == "none" {
		return nil, nil
	}
	var out []SpecItem
	total := 0
	for _, part := range strings.Split(text, ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), ":")
		count, mode, _ := strings.Cut(rest, ":")
		item := SpecItem{Model: strings.ToLower(name), Count: 1, MIG: mode == "mig"}
		m, ok := models[item.Model]
		if !ok {
			return nil, fmt.Errorf("cannot simulate a GPU %.40q in %.60q: known are %s", name, text, strings.Join(modelNames(), ", "))
		}
		if count != "" {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 || n > maxFakes {
				return nil, fmt.Errorf("cannot simulate %.20q GPUs of %s: write a number from 1 to %d, such as %s:2", count, name,
					maxFakes, name)
			}
			item.Count = n
		}
		switch {
		case mode != "" && mode != "mig":
			return nil, fmt.Errorf("cannot read %.20q in %.60q: only mig may follow the number", mode, text)
		case item.MIG && m.slices == nil:
			return nil, fmt.Errorf("cannot cut a %s into instances: it has no MIG", name)
		}
		out = append(out, item)
		total += item.Count
	}
	if total > maxFakes {
		return nil, fmt.Errorf("cannot simulate %d GPUs on one node: at most %d", total, maxFakes)
	}
	return out, nil
}

func modelNames() []string {
	var out []string
	for name := range models {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
