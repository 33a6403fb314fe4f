package stepio

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Listener accepts the connections of a step's nodes.
type Listener struct {
	l    *net.TCPListener
	port int
}

// Listen uses a port of a range "60001-63000" (SrunPortRange of slurm.conf), or any free port if ports is empty.
func Listen(ports string) (*Listener, error) {
	low, high := 0, 0
	if ports != "" {
		a, b, ranged := strings.Cut(ports, "-")
		var err1, err2 error
		low, err1 = strconv.Atoi(a)
		if high = low; ranged {
			high, err2 = strconv.Atoi(b)
		}
		if err := cmp.Or(err1, err2); err != nil || low < 1 || high > 65535 || low > high {
			return nil, fmt.Errorf("cannot read SrunPortRange=%s of slurm.conf: expected two ports, as in 60001-63000", ports)
		}
	}
	var err error
	for i := 0; i <= high-low; i++ {
		port := low
		if high > low { // start at different ports: many sruns run at a time
			port = low + (i+syscall.Getpid())%(high-low+1)
		}
		var l *net.TCPListener
		if l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: port}); err == nil {
			return &Listener{l: l, port: l.Addr().(*net.TCPAddr).Port}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("cannot listen for the nodes of the step: %w", err)
}

// mostAddresses is the maximum number of this host's addresses sent to nodes.
const mostAddresses = 8

// Addresses returns the addresses at which nodes may reach this process, "host:port". Loopback comes last, for a node on this host.
func (l *Listener) Addresses() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		addrs = nil
	}
	type address struct {
		rank int
		text string
	}
	var found []address
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsMulticast() || n.IP.IsLinkLocalUnicast() || n.IP.IsUnspecified() {
			continue
		}
		rank := 0
		switch {
		case n.IP.IsLoopback():
			rank = 2
		case n.IP.To4() == nil:
			rank = 1
		}
		if rank == 2 && n.IP.To4() == nil {
			continue
		}
		found = append(found, address{rank, net.JoinHostPort(n.IP.String(), strconv.Itoa(l.port))})
	}
	slices.SortStableFunc(found, func(a, b address) int { return a.rank - b.rank })
	if len(found) > mostAddresses { // keep loopback
		found = append(found[:mostAddresses-1], found[len(found)-1])
	}
	list := make([]string, 0, len(found))
	for _, f := range found {
		list = append(list, f.text)
	}
	if len(list) == 0 {
		list = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port))}
	}
	return list
}

// Close stops listening.
func (l *Listener) Close() { _ = l.l.Close() }

// Port returns the port in use.
func (l *Listener) Port() int { return l.port }
