package conf

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// PurgeJobAfter is how long a job is kept in the accounting database after its end, 0 = for ever:
// AccountingStorageParameters=PurgeJobAfter=12months. The value is written as in slurmdbd.conf(5), "PurgeJobAfter": a number of months,
// or of days, hours or months with that word after it. A month has 30 days.
func (c *Config) PurgeJobAfter() (time.Duration, error) {
	text := strings.ToLower(c.AccountingStorageParameters.Get("PurgeJobAfter"))
	if text == "" {
		return 0, nil
	}
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, err := strconv.ParseUint(text[:digits], 10, 31)
	unit := map[string]time.Duration{"": month, "month": month, "months": month, "day": 24 * time.Hour, "days": 24 * time.Hour,
		"hour": time.Hour, "hours": time.Hour}[text[digits:]]
	if err != nil || n == 0 || unit == 0 || n > uint64(maxKeep/unit) {
		return 0, fmt.Errorf("PurgeJobAfter=%s is not a valid time to keep jobs", text)
	}
	return time.Duration(n) * unit, nil
}

const (
	month   = 30 * 24 * time.Hour
	maxKeep = 200 * 365 * 24 * time.Hour
)
