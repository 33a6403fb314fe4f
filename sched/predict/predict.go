// Package predict estimates how long a job will run: the average of its user's last two completed runs of that name
// (Tsafrir, Etsion, Feitelson: Backfilling using system-generated predictions rather than user runtime estimates, TPDS
// 2007). The estimate orders backfill candidates; whether a job fits is always decided by its real limit.
package predict

// History remembers completed runs. The zero value is empty and ready.
type History struct {
	last map[key]pair
}

type key struct{ user, name string }

type pair struct{ newer, older int64 }

// maxKeys bounds the memory: beyond it, new users and names are not remembered. That affects an order of candidates, never a promise.
const maxKeys = 1 << 20

// Ended records a completed run of runS seconds.
func (h *History) Ended(user, name string, runS int64) {
	if h.last == nil {
		h.last = map[key]pair{}
	}
	k := key{user, name}
	p, known := h.last[k]
	if !known && len(h.last) >= maxKeys {
		return
	}
	h.last[k] = pair{max(1, runS), p.newer}
}

// Predict returns the expected run time in seconds; 0 when there is no history.
func (h *History) Predict(user, name string) int64 {
	p := h.last[key{user, name}]
	if p.older == 0 {
		return p.newer
	}
	return (p.newer + p.older) / 2
}
