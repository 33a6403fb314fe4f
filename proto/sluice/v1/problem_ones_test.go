package pb

import "testing"

// TestProblemsCountOne: what there is one of is not written as many.
func TestProblemsCountOne(t *testing.T) {
	for text, want := range map[string]string{
		"1 tasks with 1 GPUs each are not 11 GPUs": "1 task with 1 GPU each are not 11 GPUs",
		"21 CPUs, 0.1 nodes, n[1-1 nodes":          "21 CPUs, 0.1 nodes, n[1-1 nodes",
		"node n1 has 1 processes (1 files)":        "node n1 has 1 process (1 file)",
		"NodeName=n1 CPUs=4":                       "NodeName=n1 CPUs=4",
	} {
		if got := NewProblem(CodeNodeConfig, "%s", text).WithHint("%s", text); got.Detail != want || got.Hint != want {
			t.Errorf("%q: %q, %q, want %q", text, got.Detail, got.Hint, want)
		}
	}
}
