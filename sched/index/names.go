package index

// compareNames orders names naturally: n2 before n10. It decides ties between equal nodes.
func compareNames(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if digit(a[i]) && digit(b[j]) {
			x, ni := number(a, i)
			y, nj := number(b, j)
			if c := compareDigits(x, y); c != 0 {
				return c
			}
			i, j = ni, nj
			continue
		}
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
		i++
		j++
	}
	if c := (len(a) - i) - (len(b) - j); c != 0 {
		return c
	}
	return compareStrings(a, b) // n1 and n01
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number returns the run of digits at i without leading zeros, and its end.
func number(s string, i int) (string, int) {
	j := i
	for j < len(s) && digit(s[j]) {
		j++
	}
	for i < j-1 && s[i] == '0' {
		i++
	}
	return s[i:j], j
}

func compareDigits(x, y string) int {
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return compareStrings(x, y)
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
