package conf

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// PurgeJobAfter is how long the accounting database keeps a job after its end; 0 means forever.
// AccountingStorageParameters=PurgeJobAfter=12months sets it, with a value as in slurmdbd.conf(5): a number of months, or a number
// followed by hours, days or months. A month has 30 days.
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
