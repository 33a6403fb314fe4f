package logfile

import (
	"sync"
	"time"
)

// Seldom lets the same line into a log once in a while, and counts what it leaves out. It is for lines that somebody else can bring about
// as often as they like: a user's broken calls, a disk that stays full.
type Seldom struct {
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	said map[string]*spell
}

// spell is the time since a line was written.
type spell struct {
	from time.Time
	left int
}

// maxLines bounds the lines that are told apart.
const maxLines = 4096

// NewSeldom lets each line in once in every so long.
func NewSeldom(every time.Duration) *Seldom {
	return &Seldom{every: every, now: time.Now, said: map[string]*spell{}}
}

// Says reports whether a line is due, and how many like it were left out since the last. The line is known by its cause: what happened,
// and to whom.
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
		if len(s.said) >= maxLines { // more causes at a time than can be told apart: one line for all of them
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
