package admit

import (
	"slices"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestNamesInRequests(t *testing.T) {
	for expr, want := range map[string][]string{"a": {"a"}, "[a*2&b*1]|(c&d)": {"a", "b", "c", "d"}, "a,b": {"a", "b"}, "": {}} {
		if got := featureNames(expr); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", expr, got, want)
		}
	}
	for list, want := range map[string][]string{
		"gres/gpu:a100:2": {"gpu"}, "gpu:1,shard:2": {"gpu", "shard"}, "cpu=2,gres/gpu=1": {"gpu"}, "license/x:1": nil, "": nil, "none": nil,
	} {
		if got := gresNames(list); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
	if p := unknown(pb.CodeInvalidFeature, "feature", []string{"a", "x"}, []string{"", "a", "b", "a"}); p.GetCode() != uint32(pb.CodeInvalidFeature) || p.Hint != "there are: a, b" {
		t.Error(p)
	}
	if p := unknown(pb.CodeInvalidGres, "generic resource", []string{"gpu", ""}, []string{"gpu"}); p != nil {
		t.Error(p)
	}
}
