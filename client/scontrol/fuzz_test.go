package scontrol

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzUpdateWords: whatever stands behind "scontrol update", words become pairs without losing any, and a value is either sent or
// refused in words that name what it was about.
func FuzzUpdateWords(f *testing.F) {
	for _, s := range []string{"jobid=1 name=x", "job 1 name=x", "nodename=n1 state=drain reason=a b", "jobid=1 timelimit+=5", "=",
		"a=b=c", "name", "+=", "jobid=1 starttime=now+", "jobid=1 mailtype=END,FAIL", "jobid=1 numcpus=1-", "jobid=1 numnodes=-"} {
		f.Add(s)
	}
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Fields(line)
		list := pairs(words)
		if len(list) > len(words) || len(words) > 0 && len(list) == 0 {
			t.Fatalf("%d words make %d pairs: %q", len(words), len(list), line)
		}
		for _, p := range list {
			key, known := canonicalKey(jobKeys(), p.key)
			if !known {
				continue
			}
			send, refusal := jobValue(now, key, p.value)
			if refusal != nil && strings.TrimSpace(refusal[0]) == "" {
				t.Fatalf("%s=%q is refused without a word", key, p.value)
			}
			read := slices.Contains([]string{"MailType", "StartTime", "EligibleTime", "EndTime", "Deadline"}, key) // sent as it was read
			if refusal == nil && !read && send != p.value {
				t.Fatalf("%s=%q is sent as %q", key, p.value, send)
			}
		}
	})
}
