package nodeport

import (
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

// Limits of connections without a valid certificate: any client can have one. A host that joins sends less than two KiB and is gone within
// a second.
const (
	maxStrangers     = 64
	maxAddrStrangers = 8
	strangerBytes    = 64 << 10
	strangerLife     = 30 * time.Second
)

var errStrangerBytes = errors.New("a connection without a certificate sent too much data")

// stranger counts a connection without a valid certificate, and returns the one that has to make room for it, if any: a random one, as for
// handshakes.
func (d *Door) stranger(g *guest) (out *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.gone {
		return nil
	}
	d.forget(g)
	switch list := d.without[g.from]; {
	case len(list) >= maxAddrStrangers:
		out = list[rand.IntN(len(list))]
	case d.many >= maxStrangers:
		out = ofMost(d.without, nil)
	}
	g.alone, g.name = true, ""
	d.without[g.from] = append(d.without[g.from], g)
	d.many++
	g.left.Store(strangerBytes)
	g.bounded.Store(true)
	g.end = time.AfterFunc(strangerLife, func() { _ = g.Close() })
	return out
}

// ofMost returns a connection of the address with most, except the addresses in but.
func ofMost(lists map[netip.Addr][]*guest, but map[netip.Addr]bool) *guest {
	var longest []*guest
	for from, list := range lists {
		if len(list) > len(longest) && !but[from] {
			longest = list
		}
	}
	if len(longest) == 0 {
		return nil
	}
	return longest[rand.IntN(len(longest))]
}

// Read reads as much as a connection without a certificate may send.
func (g *guest) Read(p []byte) (int, error) {
	if !g.bounded.Load() {
		return g.Conn.Read(p)
	}
	left := g.left.Load()
	if left <= 0 {
		_ = g.Close()
		return 0, errStrangerBytes
	}
	n, err := g.Conn.Read(p[:min(int64(len(p)), left)])
	g.left.Add(-int64(n))
	return n, err
}

// accepts reports whether the certificate of a connection is valid.
func (d *Door) accepts(g *guest) bool { return d.Accepts == nil || d.Accepts(g.id.Name, g.serial) }

// Shown is a certificate that was presented.
type Shown struct {
	mtls.Identity
	Serial  string
	Issued  time.Time // zero: unknown
	Expires time.Time
	At      time.Time // last
	Open    int       // its open connections
	Since   time.Time // the oldest of them
	From    netip.Addr
	Release string        // of its daemon, "": unknown
	Ahead   time.Duration // by how much its clock was ahead then
}

// Met notes a host's report about itself in a call.
func (d *Door) Met(serial, release string, ahead time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.shown[serial]; s != nil {
		s.Release, s.Ahead = release, ahead
	}
}

// show notes a valid certificate.
func (d *Door) show(g *guest, c *x509.Certificate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	s := d.shown[g.serial]
	if s == nil {
		if len(d.shown) >= maxKnown {
			for serial, old := range d.shown { // an expired one, or any
				if delete(d.shown, serial); old.Expires.Before(now) {
					break
				}
				if len(d.shown) < maxKnown-maxKnown/16 {
					break
				}
			}
		}
		s = &Shown{Identity: g.id, Serial: g.serial, Expires: c.NotAfter}
		s.Issued, _ = mtls.Issued(c)
		d.shown[g.serial] = s
	}
	s.At, s.From = now, g.from
	g.since = now
}

// Shown returns the certificates that were presented since the controller has started, with their open connections.
func (d *Door) Shown() []Shown {
	d.mu.Lock()
	defer d.mu.Unlock()
	open, since := map[string]int{}, map[string]time.Time{}
	for _, list := range d.nodes {
		for _, g := range list {
			if open[g.serial]++; open[g.serial] == 1 || g.since.Before(since[g.serial]) {
				since[g.serial] = g.since
			}
		}
	}
	all := make([]Shown, 0, len(d.shown))
	for serial, s := range d.shown {
		one := *s
		one.Open, one.Since = open[serial], since[serial]
		all = append(all, one)
	}
	return all
}

// Cut closes all connections of a host, and returns their number. The controller's own certificate is not a host's.
func (d *Door) Cut(name string) int {
	var out []*guest
	d.mu.Lock()
	for _, list := range d.nodes {
		for _, g := range list {
			if g.id.Name == name && g.id.Role != mtls.RoleController {
				out = append(out, g)
			}
		}
	}
	d.mu.Unlock()
	for _, g := range out {
		_ = g.Close()
	}
	return len(out)
}
