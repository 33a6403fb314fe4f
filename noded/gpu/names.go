package gpu

import (
	"regexp"
	"slices"
	"strings"
)

// Words of a model's name for its maker, form or memory size, which do not identify the model.
var (
	makers = []string{"mock", "nvidia", "tesla", "geforce"}
	forms  = regexp.MustCompile(`^(pcie?|sxm\d*|nvl|hbm\d\w*|\d+gb|generation|gpu|shared|graphics|with|max-q|design)$`)
	mount  = regexp.MustCompile(`^([a-z]+\d+\w*?)-(pcie?|sxm\d*|nvl|hgx|\d+gb|\d+q).*$`)
)

// LongType returns the name of a model in Slurm's AutoDetect: in lower case, with underscores (gres.conf(5), Type:
// "nvidia_a100-sxm4-40gb").
func LongType(model string) string {
	return strings.Join(strings.Fields(strings.ToLower(model)), "_")
}

// ShortType returns the short name of a model for types: "a100" for "NVIDIA A100-SXM4-40GB", "titan_xp" for "NVIDIA TITAN Xp".
func ShortType(model string) string {
	var words []string
	for _, w := range strings.Fields(strings.ToLower(model)) {
		w = strings.TrimRight(mount.ReplaceAllString(w, "$1"), ",")
		if slices.Contains(makers, w) || len(words) > 0 && forms.MatchString(w) {
			continue
		}
		words = append(words, typeWord(w))
	}
	if len(words) == 0 {
		return LongType(model)
	}
	return strings.Join(words, "_")
}

// typeWord removes characters that a type must not contain: it is written between colons and commas, and parsed by others.
func typeWord(w string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' || r == '+' {
			return r
		}
		return '_'
	}, w)
}

// TypeMatches reports whether a configured type matches a model: the short name, or any part of the long one (gres.conf(5): "the
// Type must match or be a substring of what AutoDetect found"). An instance's type ends in its profile.
func TypeMatches(typ, model string) bool {
	typ = strings.ToLower(typ)
	return typ != "" && (typ == ShortType(model) || strings.Contains(LongType(model), typ))
}

// instanceType returns the type of an instance: "a100_3g.20gb".
func instanceType(gpuType, profile string) string { return gpuType + "_" + profile }
