package metrics

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
)

// How many connections there are at most: of all readers, and of those of one address that have shown nothing yet. A server of
// Prometheus has one for each page that it reads, and several of them may have one address.
const (
	maxConnections = 64
	maxStrangers   = 8
)

// door is a listener with places for so many. Who has shown a token or a certificate keeps his place; of the others, who came first gives
// way to one who comes when there is none left, so that nobody shuts others out by connecting alone.
type door struct {
	net.Listener
	each bool // so many of one address: not where all readers have the same

	mu        sync.Mutex
	strangers []*visitor // in the order in which they came
	known     int
}

// visitor is a connection.
type visitor struct {
	net.Conn
	door  *door
	from  netip.Addr
	known bool
	gone  bool
}

func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v := d.admit(c); v != nil {
			return v, nil
		}
		_ = c.Close()
	}
}

// admit gives a connection its place, nil when there is none.
func (d *door) admit(c net.Conn) *visitor {
	v := &visitor{Conn: c, door: d, from: network(c.RemoteAddr())}
	d.mu.Lock()
	defer d.mu.Unlock()
	same := 0
	for _, o := range d.strangers {
		if o.from == v.from {
			same++
		}
	}
	switch {
	case d.each && same >= maxStrangers, d.known >= maxConnections:
		return nil
	case d.known+len(d.strangers) >= maxConnections:
		oldest := d.strangers[0]
		d.leave(oldest)
		_ = oldest.Conn.Close()
	}
	d.strangers = append(d.strangers, v)
	return v
}

// leave takes a connection off the lists. d.mu is held.
func (d *door) leave(v *visitor) {
	if v.gone {
		return
	}
	v.gone = true
	if v.known {
		d.known--
		return
	}
	d.forget(v)
}

func (d *door) forget(v *visitor) {
	for i, o := range d.strangers {
		if o == v {
			d.strangers = append(d.strangers[:i], d.strangers[i+1:]...)
			return
		}
	}
}

// trust is called when somebody has shown who he is: he is no stranger any more.
func (v *visitor) trust() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	if v.gone || v.known {
		return
	}
	v.known = true
	v.door.forget(v)
	v.door.known++
}

func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.leave(v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// visitorOf is the connection below TLS, nil where there is none.
func visitorOf(c net.Conn) *visitor {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	v, _ := c.(*visitor)
	return v
}

// network is the address of a host; of IPv6 the first 64 bits, of which a host may have all addresses.
func network(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64) // 64 is a length that there is
		ip = p.Addr()
	}
	return ip
}
