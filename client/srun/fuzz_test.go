package srun

import (
	"testing"
)

// FuzzPrograms: whatever the file of --multi-prog says, each task has one program, or the file is refused.
func FuzzPrograms(f *testing.F) {
	for _, s := range []string{"0 a\n1-3 b %t %o\n", "* c 'd e' f", "0,2 x\\\n y\n1,3 z", "# c\n0-3\ta",
		"0-1 a\n1 b", "9 a", "-1 a", "0 '", "*"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const tasks = 4
		programs, err := parsePrograms("f", data, []string{"more"}, tasks)
		if err != nil {
			return
		}
		seen := map[uint32]bool{}
		for _, p := range programs {
			if len(p.argv) < 2 || p.argv[len(p.argv)-1] != "more" {
				t.Fatalf("%q: task %v executes %q", data, p.tasks, p.argv)
			}
			for _, rank := range p.tasks {
				if seen[rank] || rank >= tasks {
					t.Fatalf("%q: task %d", data, rank)
				}
				seen[rank] = true
			}
		}
		if len(seen) != tasks {
			t.Fatalf("%q: %d tasks have a program", data, len(seen))
		}
	})
}
