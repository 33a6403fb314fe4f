package gpuhours

import "github.com/sluice-hpc/sluice/conf/hostlist"

// set is a set of places by index.
type set []uint64

func (s set) has(i int) bool { return i>>6 < len(s) && s[i>>6]&(1<<(i&63)) != 0 }

// lists caches the lists of nodes of waiting jobs, so that a look parses each once: thousands of jobs may have the same list of thousands
// of nodes. visits is the cost of the look so far.
type lists struct {
	visits int
	places map[string]int // by the node's name
	cache  map[string]listed
}

type listed struct {
	names  []string
	places set // never nil
}

// newLists numbers the places.
func newLists(pool []*place) *lists {
	l := &lists{places: make(map[string]int, len(pool)), cache: map[string]listed{}}
	for i, p := range pool {
		p.at, l.places[p.Name] = i, i
	}
	return l
}

// read parses a list; it returns nothing if that would cost more than is left.
func (l *lists) read(text string) listed {
	if known, ok := l.cache[text]; ok {
		return known
	}
	out := listed{places: make(set, (len(l.places)+63)/64)}
	n, _ := hostlist.Count(text) // cannot fail: admit has read it
	if l.visits += nameVisits * n; l.visits <= maxVisits {
		out.names, _ = hostlist.Expand(text)
	}
	for _, name := range out.names {
		if i, ok := l.places[name]; ok {
			out.places[i>>6] |= 1 << (i & 63)
		}
	}
	l.cache[text] = out
	return out
}
