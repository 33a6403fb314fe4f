package acct

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// suffixes of powers of 1024.
const suffixes = "BKMGTPE"

// Size formats bytes as sacct does: in the largest unit without a fraction ("8284K", "6M"), in that of --units, or with --noconvert
// in bytes.
func (c *Context) Size(bytes uint64) string {
	if bytes == 0 {
		return "0"
	}
	if c.Units != 0 {
		return inUnit(bytes, c.Units)
	}
	power := 0
	for !c.NoConvert && bytes%1024 == 0 && power < len(suffixes)-1 {
		bytes, power = bytes/1024, power+1
	}
	if power == 0 {
		return strconv.FormatUint(bytes, 10)
	}
	return strconv.FormatUint(bytes, 10) + suffixes[power:power+1]
}

// Traffic formats bytes read or written: in megabytes or the next larger unit, with two decimals.
func (c *Context) Traffic(bytes uint64) string {
	if c.Units != 0 || bytes == 0 {
		return inUnit(bytes, c.Units)
	}
	value, power := float64(bytes)/(1<<20), 2
	for value > 1024 && !c.NoConvert && power < len(suffixes)-1 {
		value, power = value/1024, power+1
	}
	return trimZeros(value) + suffixes[power:power+1]
}

func inUnit(bytes uint64, unit byte) string {
	if bytes == 0 {
		return "0"
	}
	power := max(strings.IndexByte(suffixes, unit), 1)
	value := float64(bytes)
	for range power {
		value /= 1024
	}
	return trimZeros(value) + suffixes[power:power+1]
}

// trimZeros formats two decimals, or none for a whole number.
func trimZeros(v float64) string {
	if v == float64(uint64(v)) {
		return strconv.FormatUint(uint64(v), 10)
	}
	return fmt.Sprintf("%.2f", v)
}

// Memory formats MiB as in ReqMem and TRES lists.
func (c *Context) Memory(mib uint64) string {
	switch {
	case mib == 0:
		return "0"
	case c.Units != 0:
		return tres.FormatMiBIn(mib, c.Units)
	case c.NoConvert:
		return strconv.FormatUint(mib, 10) + "M"
	}
	return tres.FormatMiB(mib)
}

// Tres formats a list of trackable resources as sacct does, by name.
func (c *Context) Tres(list string) string {
	l, err := tres.Parse(list)
	if err != nil {
		return list
	}
	slices.SortFunc(l, func(a, b tres.Item) int { return cmp.Compare(a.Name, b.Name) })
	parts := make([]string, 0, len(l))
	for _, it := range l {
		value := strconv.FormatUint(it.Count, 10)
		if it.Name == "mem" {
			value = c.Memory(it.Count)
		}
		parts = append(parts, it.Name+"="+value)
	}
	return strings.Join(parts, ",")
}

// cpuTime formats microseconds as in TotalCPU: "00:00.049" below an hour, "01:02:03" above, "00:00:00" for whole seconds.
func cpuTime(usec uint64) string {
	seconds, ms := int64(usec/1e6), usec/1000%1000
	if seconds >= 3600 || ms == 0 {
		return timespec.Clock(seconds)
	}
	return fmt.Sprintf("%02d:%02d.%03d", seconds/60, seconds%60, ms)
}
