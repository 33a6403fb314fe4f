// Package tres reads and writes memory sizes ("1G"), trackable resources ("cpu=4,mem=1.50G,node=1,gres/gpu=2") and generic
// resources ("gpu:a100:2").
//
// Memory is always in MiB, which Slurm's documentation calls megabytes. The rules are those of sbatch(1) --mem, --gres and --gpus,
// slurm.conf(5) Gres and TRESBillingWeights, and the output of Slurm 22.05.
package tres

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxMiB is the largest valid amount of memory: 2^40 MiB (1 EiB).
const MaxMiB = 1 << 40

// suffixes of sizes; the index is the power of 1024, less one.
const suffixes = "KMGTP"

func memoryError(s, why string) error {
	return fmt.Errorf("cannot read memory size %.40q: %s; write a whole number with K, M, G, T or P, such as 500M or 4G", s, why)
}

// ParseMiB reads a memory size as --mem does: a whole number and a suffix K, M, G, T or P in any case, optionally followed by B; no
// suffix means M. Kilobytes are rounded up to a whole MiB. The caller decides what 0 means: for --mem it is all memory of a node.
func ParseMiB(s string) (uint64, error) {
	whole, rest := cutDigits(s)
	if whole == "" {
		return 0, memoryError(s, "a number is missing")
	}
	if strings.HasPrefix(rest, ".") {
		return 0, memoryError(s, "it has a fraction")
	}
	return scaleMiB(s, whole, "", rest)
}

// parseTresMiB is ParseMiB for text that Slurm has printed: "1.50G".
func parseTresMiB(s string) (uint64, error) {
	whole, rest := cutDigits(s)
	fraction := ""
	if strings.HasPrefix(rest, ".") {
		fraction, rest = cutDigits(rest[1:])
	}
	if whole == "" {
		return 0, memoryError(s, "a number is missing")
	}
	return scaleMiB(s, whole, fraction[:min(len(fraction), 6)], rest)
}

// scaleMiB computes whole.fraction times unit, rounded up.
func scaleMiB(s, whole, fraction, unit string) (uint64, error) {
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || n > MaxMiB*1024 {
		return 0, memoryError(s, "it is too large")
	}
	power, ok := power1024(unit)
	if unit == "" {
		power, ok = 2, true
	}
	if !ok || power == 0 {
		return 0, memoryError(s, fmt.Sprintf("%.10q is not a unit", unit))
	}
	if power == 1 {
		return (n + 1023) / 1024, nil
	}
	shift := 10 * (power - 2)
	if n > MaxMiB>>shift {
		return 0, memoryError(s, fmt.Sprintf("it is more than %dP", MaxMiB>>30))
	}
	mib, scale := n<<shift, uint64(1)
	part := uint64(0)
	for _, c := range []byte(fraction) {
		part, scale = part*10+uint64(c-'0'), scale*10
	}
	return min(mib+(part<<shift+scale-1)/scale, MaxMiB), nil
}

// power1024 reads "", "K", "kb", … and returns the power of 1024.
func power1024(unit string) (power int, ok bool) {
	if unit == "" {
		return 0, true
	}
	unit = strings.ToUpper(unit)
	if len(unit) == 2 && unit[1] == 'B' {
		unit = unit[:1]
	}
	i := strings.Index(suffixes, unit)
	return i + 1, i >= 0 && len(unit) == 1
}

func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// FormatMiB formats memory as scontrol prints MinMemoryNode and the mem of a TRES list: in the largest unit in which it is at least
// one and a multiple of one half, so "100M", "1000M", "1G", "1.50G", "1280M". 0 is "0".
func FormatMiB(mib uint64) string {
	if mib == 0 {
		return "0"
	}
	halves, unit := mib*2, 1
	for halves >= 2048 && halves%1024 == 0 && unit < len(suffixes)-1 {
		halves, unit = halves/1024, unit+1
	}
	if halves%2 == 1 {
		return fmt.Sprintf("%d.50%c", halves/2, suffixes[unit])
	}
	return fmt.Sprintf("%d%c", halves/2, suffixes[unit])
}

// FormatMiBIn formats memory in one unit (K, M, G, T or P), as sacct --units does: "2G", "0.10G". Any other unit means M.
func FormatMiBIn(mib uint64, unit byte) string {
	power := strings.IndexByte(suffixes, unit)
	switch {
	case power < 0:
		power = 1
	case power == 0:
		return fmt.Sprintf("%dK", mib*1024)
	}
	shift := 10 * (power - 1)
	if mib%(1<<shift) == 0 {
		return fmt.Sprintf("%d%c", mib>>shift, suffixes[power])
	}
	return fmt.Sprintf("%.2f%c", float64(mib)/float64(uint64(1)<<shift), suffixes[power])
}
