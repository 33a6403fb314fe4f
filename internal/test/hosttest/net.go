package hosttest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// Patience is the timeout for every state; only a failure takes as long.
const Patience = 5 * time.Minute

// queueLength is the number of packets that may wait for a host; further ones are lost, as in any switch.
const queueLength = 1024

// Net is the hosts' network, 10.77.0.0/24: every packet between them passes through this process.
type Net struct {
	Bin string // directory of the programs, first in the hosts' PATH

	t   testing.TB
	dir string

	mu    sync.Mutex
	hosts []*Host
	ports map[netip.Addr]*port
	wg    sync.WaitGroup
}

// New creates a network whose hosts have their directories below dir. It and they end with the test.
func New(t testing.TB, dir, bin string) *Net {
	t.Helper()
	n := &Net{Bin: bin, t: t, dir: dir, ports: map[netip.Addr]*port{}}
	t.Cleanup(n.close)
	return n
}

func (n *Net) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *Net) close() {
	for _, h := range n.hosts {
		h.PowerOff()
	}
	n.wg.Wait()
}

// Address returns the address of the i-th host, from 0.
func Address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// port is the end of a host's cable.
type port struct {
	host  *Host
	tun   *os.File
	queue chan packet
	gone  chan struct{}
}

type packet struct {
	due  time.Time
	data []byte
}

// plug sets up the network of a booted host: eth0 and lo.
func (n *Net) plug(h *Host) {
	n.t.Helper()
	var tun *os.File
	var err error
	n.must(h.In(func() { tun, err = daemontest.Device(h.Addr) }))
	n.must(err)
	p := &port{host: h, tun: tun, queue: make(chan packet, queueLength), gone: make(chan struct{})}
	n.mu.Lock()
	known := false
	for _, o := range n.hosts {
		known = known || o == h
	}
	if !known {
		n.hosts = append(n.hosts, h)
	}
	n.ports[netip.MustParseAddr(h.Addr)] = p
	n.mu.Unlock()
	n.wg.Go(func() { n.read(p) })
	n.wg.Go(p.deliver)
}

func (n *Net) unplug(h *Host) {
	addr := netip.MustParseAddr(h.Addr)
	n.mu.Lock()
	p := n.ports[addr]
	delete(n.ports, addr)
	n.mu.Unlock()
	if p != nil {
		close(p.gone)
		p.tun.Close()
	}
}

// read handles the packets of a host until its device is gone.
func (n *Net) read(p *port) {
	b := make([]byte, 1<<16)
	for {
		size, err := p.tun.Read(b)
		if err != nil {
			return
		}
		if size < 20 || b[0]>>4 != 4 {
			continue // IPv6 router solicitation
		}
		n.mu.Lock()
		to := n.ports[netip.AddrFrom4([4]byte(b[16:20]))]
		n.mu.Unlock()
		if to == nil {
			continue
		}
		slow, ok := p.host.Cable.pass(FromHost)
		if !ok {
			continue
		}
		more, ok := to.host.Cable.pass(ToHost)
		if !ok {
			continue
		}
		select {
		case to.queue <- packet{time.Now().Add(slow + more), append([]byte(nil), b[:size]...)}:
		default:
		}
	}
}

// deliver passes packets to a host when they are due.
func (p *port) deliver() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-p.gone:
			return
		case next := <-p.queue:
			if wait := time.Until(next.due); wait > 0 {
				t.Reset(wait)
				select {
				case <-p.gone:
					return
				case <-t.C:
				}
			}
			_, _ = p.tun.Write(next.data) // lost if the host has no room
		}
	}
}

// Direction is a direction of a cable.
type Direction int

// The directions.
const (
	FromHost Direction = iota
	ToHost
)

// Line is the quality of a direction of a cable. The zero value is perfect.
type Line struct {
	Cut   bool
	Loss  float64       // fraction of packets
	Delay time.Duration // of each packet
}

// Cable connects a host to the others.
type Cable struct {
	mu    sync.Mutex
	lines [2]Line
	lost  [2]int
}

// Set sets the given directions to l.
func (c *Cable) Set(l Line, dirs ...Direction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range dirs {
		c.lines[d] = l
	}
}

// Cut cuts the given directions.
func (c *Cable) Cut(dirs ...Direction) { c.Set(Line{Cut: true}, dirs...) }

// Repair makes both directions perfect.
func (c *Cable) Repair() { c.Set(Line{}, FromHost, ToHost) }

// Lost returns how many packets were lost in a direction.
func (c *Cable) Lost(d Direction) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[d]
}

// pass decides the fate of one packet.
func (c *Cable) pass(d Direction) (delay time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[d]
	if l.Cut || l.Loss > 0 && rand.Float64() < l.Loss {
		c.lost[d]++
		return 0, false
	}
	return l.Delay, true
}
