package conf

import (
	"testing"
	"time"
)

func TestPurgeJobAfter(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  time.Duration
		bad   bool
	}{
		{value: ""}, {value: "PurgeJobAfter=12", want: 360 * 24 * time.Hour}, {value: "PurgeJobAfter=12months", want: 360 * 24 * time.Hour},
		{value: "x,purgejobafter=1Month", want: 30 * 24 * time.Hour}, {value: "PurgeJobAfter=365days", want: 365 * 24 * time.Hour},
		{value: "PurgeJobAfter=72hours", want: 72 * time.Hour}, {value: "PurgeJobAfter=0", bad: true},
		{value: "PurgeJobAfter=-1", bad: true},
		{value: "PurgeJobAfter=soon", bad: true}, {value: "PurgeJobAfter=5years", bad: true},
		{value: "PurgeJobAfter=99999999999999", bad: true},
		{value: "PurgeJobAfter=2000000000months", bad: true},
	} {
		c := &Config{AccountingStorageParameters: parseParams(tt.value)}
		if got, err := c.PurgeJobAfter(); got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%q: %v, %v", tt.value, got, err)
		}
	}
}
