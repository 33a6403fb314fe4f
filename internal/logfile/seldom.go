package logfile

import (
	"sync"
	"time"
)

// Seldom rate-limits repeated log lines and counts those that it suppresses. It is for lines that others can cause at will: a
// user's broken calls, a disk that stays full.
type Seldom struct {
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	said map[string]*spell
}

// spell is the time since a line was logged.
type spell struct {
	from time.Time
	left int
}

// maxLines bounds the number of distinct lines.
const maxLines = 4096

// NewSeldom allows each line once per interval.
func NewSeldom(every time.Duration) *Seldom {
	return &Seldom{every: every, now: time.Now, said: map[string]*spell{}}
}

// Says reports whether a line is due, and how many were suppressed since the last one. Lines are identified by their cause: what
// happened, and to whom.
func (s *Seldom) Says(cause string) (due bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if w := s.said[cause]; w != nil {
		if now.Sub(w.from) < s.every {
			w.left++
			return false, 0
		}
		left = w.left
	}
	if len(s.said) >= maxLines {
		for k, w := range s.said {
			if now.Sub(w.from) >= s.every && w.left == 0 {
				delete(s.said, k)
			}
		}
		if len(s.said) >= maxLines { // too many distinct causes: one line for all of them
			cause = ""
			if w := s.said[cause]; w != nil && now.Sub(w.from) < s.every {
				w.left++
				return false, 0
			}
		}
	}
	s.said[cause] = &spell{from: now}
	return true, left
}
