package pretend

import (
	"context"
	"net"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/tcp"
)

// Apart connects each node from its own address in 127.0.0.0/8, as real nodes do; for a controller on this machine.
func Apart(nodes []*conf.Node) func(ctx context.Context, node, addr string) (net.Conn, error) {
	numbers := make(map[string]int, len(nodes))
	for i, n := range nodes {
		numbers[n.Name] = i
	}
	return func(ctx context.Context, node, addr string) (net.Conn, error) {
		i := numbers[node]
		d := tcp.Dialer(0)
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(1+i>>16), byte(i>>8), byte(i))}
		return d.DialContext(ctx, "tcp", addr)
	}
}
