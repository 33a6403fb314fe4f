package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// Limits may have hours (LimitHours of associations and QOS). The limits that apply are computed with each change of the policy, and again
// in the first transaction after a window has opened or closed; there is one every second (reactor.Tick). The answer never changes within a
// view, and jobs are looked at again only when it changes.

// hours tells which windows are open at a moment, by their texts.
type hours struct {
	asOfNS, turnNS int64 // computed at asOfNS, valid until turnNS; turnNS = 0: for ever
	zone           *time.Location
	of             map[string]hoursNow
}

type hoursNow struct {
	within  bool
	untilNS int64 // 0: always
}

// Counts reports whether limits with these hours apply now, and until when; 0 = always.
func (p *Policy) Counts(limitHours string) (now bool, untilNS int64) {
	if limitHours == "" {
		return true, 0
	}
	h := p.hours.of[limitHours]
	return h.within, h.untilNS
}

// AtAllHours returns a view in which all limits apply, whatever their hours: a job that it never admits is never admitted.
func (v *View) AtAllHours() *View {
	n, p := *v, *v.Policy()
	p.hours.of = maps.Clone(p.hours.of)
	for text, h := range p.hours.of {
		p.hours.of[text] = hoursNow{within: true, untilNS: max(1, h.untilNS)}
	}
	n.policy = &p
	return &n
}

// noteHours computes which limits apply.
func (p *Policy) noteHours(nowNS int64, zone *time.Location) {
	p.hours = hours{asOfNS: nowNS, zone: zone, of: map[string]hoursNow{}}
	for _, a := range p.assocs {
		p.hours.note(a.LimitHours)
	}
	for _, q := range p.qos {
		p.hours.note(q.LimitHours)
	}
}

func (h *hours) note(text string) {
	if _, known := h.of[text]; known || text == "" {
		return
	}
	windows, _ := accounts.ParseHours(text)
	within, until := windows.At(time.Unix(0, h.asOfNS).In(h.zone))
	n := hoursNow{within: within}
	if !until.IsZero() {
		n.untilNS = until.UnixNano()
		h.turnNS = min(cmp.Or(h.turnNS, n.untilNS), n.untilNS)
	}
	h.of[text] = n
}

// hoursTurn reports whether the limits that apply have changed: a window has opened or closed, or the clock was set.
func (p *Policy) hoursTurn(nowNS int64, s *Settings) bool {
	h := &p.hours
	return len(h.of) > 0 && (h.turnNS != 0 && nowNS >= h.turnNS || nowNS < h.asOfNS || s.Location().String() != h.zone.String())
}

// HoursTurned: limits apply from now on, or no longer. Not durable.
type HoursTurned struct{}

func (HoursTurned) apply(tx *Tx) {
	p := *tx.Policy()
	p.noteHours(tx.NowNS, tx.Settings().Location())
	tx.next.policy = &p
	tx.restructure()
}

// Attrs implements Event.
func (HoursTurned) Attrs() []any { return nil }

// checkHours computes anew which limits apply, and compares.
func (p *Policy) checkHours() (faults []error) {
	n := *p
	n.noteHours(p.hours.asOfNS, cmp.Or(p.hours.zone, time.UTC))
	if !maps.Equal(n.hours.of, p.hours.of) || n.hours.turnNS != p.hours.turnNS {
		faults = append(faults, fmt.Errorf("hours of limits: %v until %d, they are %v until %d", p.hours.of, p.hours.turnNS, n.hours.of,
			n.hours.turnNS))
	}
	for _, text := range slices.Sorted(maps.Keys(n.hours.of)) {
		if h, err := accounts.ParseHours(text); err != nil || h.String() != text {
			faults = append(faults, fmt.Errorf("hours %q of a limit are %q: %v", text, h, err))
		}
	}
	return faults
}
