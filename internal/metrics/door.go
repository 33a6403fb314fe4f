package metrics

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
)

// Limits of connections: in total, and per address without credentials. A Prometheus server has one connection per page, and
// several servers may share an address.
const (
	maxConnections = 64
	maxStrangers   = 8
)

// door is a listener with a limited number of places. Clients with a valid token or certificate keep their place. If all places are
// taken, the oldest other client gives way to a new one, so nobody can lock others out merely by connecting.
type door struct {
	net.Listener
	each bool // limit connections per address; not if all readers have the same one

	mu        sync.Mutex
	strangers []*visitor // oldest first
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

// admit gives a connection a place, or returns nil if there is none.
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

// leave removes a connection from the lists. d.mu is held.
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

// trust marks a visitor whose credentials have been verified.
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

// visitorOf returns the connection below TLS, nil if there is none.
func visitorOf(c net.Conn) *visitor {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	v, _ := c.(*visitor)
	return v
}

// network returns the address of a host; for IPv6 its first 64 bits, because one host may use all addresses of that prefix.
func network(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64) // 64 is a valid length
		ip = p.Addr()
	}
	return ip
}
