package format

import (
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

func TestJobGres(t *testing.T) {
	for want, nodes := range map[string][]string{
		"":                   {"", ""},
		"gpu:a100:3":         {"gpu:a100:2(IDX:0-1)", "gpu:a100:1(IDX:0)"},
		"gpu:a100:2,gpu:v:1": {"gpu:a100:1(IDX:0),gpu:v:1(IDX:3)", "gpu:a100:1(IDX:5)"},
		"gpu:a100:2,fpga:3":  {"gpu:a100:2(IDX:0,2),fpga:3"},
		"license:4,gpu:1":    {"license:4,gpu:1(IDX:7)"},
		"gpu:a100_3g.20gb:1": {"gpu:a100_3g.20gb:1(IDX:12)"},
	} {
		var alloc []*msg.NodeAlloc
		for _, text := range nodes {
			alloc = append(alloc, &msg.NodeAlloc{Gres: text})
		}
		if got := jobGres(alloc); got != want {
			t.Errorf("%q: %s, want %s", nodes, got, want)
		}
	}
}
