package admit

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// checkFeatures refuses a --constraint with a feature that no node has (sbatch(1), -C). The scheduler decides whether nodes satisfy the
// expression.
func checkFeatures(v *state.View, s *pb.JobSpec) *pb.Problem {
	if s.Features == "" {
		return nil
	}
	if !balanced(s.Features) {
		return pb.NewProblem(pb.CodeInvalidFeature, "unbalanced brackets in %q", s.Features)
	}
	return unknown(pb.CodeInvalidFeature, "feature", featureNames(s.Features), feasible.NamesOf(v).Features)
}

// balanced reports whether each bracket of an expression is closed.
func balanced(expr string) bool {
	var open []rune
	for _, r := range expr {
		switch r {
		case '[', '(':
			open = append(open, r)
		case ']', ')':
			if len(open) == 0 || open[len(open)-1] != map[rune]rune{']': '[', ')': '('}[r] {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return len(open) == 0
}

// featureNames returns the words of an expression such as "[a*2&b]|(c&d)".
func featureNames(expr string) []string {
	words := strings.FieldsFunc(expr, func(r rune) bool { return strings.ContainsRune("&|,[]() ", r) })
	for i, w := range words {
		words[i], _, _ = strings.Cut(w, "*")
	}
	return words
}

// checkGres refuses generic resources that no node has (sbatch(1), --gres).
func checkGres(v *state.View, s *pb.JobSpec) *pb.Problem {
	var asked []string
	for _, list := range []string{s.TresPerJob, s.TresPerNode, s.TresPerSocket, s.TresPerTask} {
		asked = append(asked, gresNames(list)...)
	}
	if len(asked) == 0 {
		return nil
	}
	return unknown(pb.CodeInvalidGres, "generic resource", asked, feasible.NamesOf(v).Gres)
}

// gresNames returns the names in "gres/gpu:a100:2,shard:1". It leaves out resources of other kinds, and those with count 0: scripts for any
// cluster have --gpus=0.
func gresNames(list string) []string {
	var names []string
	for _, item := range strings.Split(list, ",") {
		if strings.HasSuffix(item, ":0") {
			continue
		}
		name, _, _ := strings.Cut(item, ":")
		name, _, _ = strings.Cut(name, "=")
		name, isGres := strings.CutPrefix(name, "gres/")
		switch {
		case name == "" || name == "none":
		case !isGres && (name == "cpu" || name == "mem" || name == "billing" || strings.Contains(name, "/")):
		default:
			name, _, _ = strings.Cut(name, "/")
			names = append(names, name)
		}
	}
	return names
}

func unknown(code pb.Code, what string, asked, have []string) *pb.Problem {
	for _, name := range asked {
		if name == "" || slices.Contains(have, name) {
			continue
		}
		p := pb.NewProblem(code, "no node has the %s %q", what, name)
		if len(have) > 0 {
			p.WithHint("there are: %s", strings.Join(have[:min(len(have), 20)], ", "))
		}
		return p
	}
	return nil
}
