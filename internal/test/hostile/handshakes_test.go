package hostile

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func init() {
	// handshakes ADDRESSES COUNT opens connections to the node port from so many addresses of this machine and shows no certificate. It
	// keeps COUNT open, or what it is left of them, and opens more for as long as it runs. A line is for each round.
	attacks["handshakes"] = func(a *attacker) {
		addresses, err := strconv.Atoi(a.args[0])
		a.need(err)
		count, err := strconv.Atoi(a.args[1])
		a.need(err)
		conns := make([]net.Conn, count)
		for round := 0; ; round++ {
			for i := range conns {
				d := net.Dialer{Timeout: stalled, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%addresses))}}
				if addresses == 1 {
					d.LocalAddr = nil // that of the node
				}
				conn, err := d.Dial("tcp", os.Getenv("NODES_AT"))
				if err != nil {
					continue
				}
				_, _ = conn.Write([]byte{22, 3, 1}) // TLS begins like that
				if conns[i] != nil {
					_ = conns[i].Close()
				}
				conns[i] = conn
			}
			a.say("%d", round)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// TestFloodOfHandshakes: who opens connections to the node port and shows no certificate has few descriptors of the controller's, whether
// the connections come from one address or from many, and neither keeps commands out nor a node.
func TestFloodOfHandshakes(t *testing.T) {
	for what, from := range map[string]int{"the node's address": 1, "many addresses": 200} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var all []*process
			for range 2 {
				all = append(all, c.attack(mallory, "handshakes", fmt.Sprint(from), "500"))
			}
			for _, a := range all {
				a.number()
			}
			// Those under way, those that have just been accepted or are about to be closed, and those of commands. The attackers keep a
			// thousand: how many are about to be closed at a moment depends on what else runs.
			c.await("the controller has few sockets", func() bool {
				n := c.sockets()
				return n <= c.idle+80 || from > 1 && n <= c.idle+300
			})
			c.bystander()
			c.startNode()
			for _, a := range all {
				a.number() // they go on
			}
			c.unharmed(all...)
		})
	}
}

// startNode starts the node and waits until it is linked.
func (c *cluster) startNode() *daemon {
	c.t.Helper()
	tls := filepath.Join(c.dir, "tls")
	issue := start(c.t, 0, c.env(), filepath.Join(bin, "sluice-ctld"), "issue", "--any-node", "--state", filepath.Join(c.dir, "state"),
		"--node", "n1", "--out", tls)
	if out, code := issue.end(); code != 0 {
		c.t.Fatal(out)
	}
	c.node = c.launch("noded", "sluice-noded", "--conf", c.conf, "--node", "n1", "--spool", filepath.Join(c.dir, "spool", "n1"), "--tls",
		tls,
		"--controller", fmt.Sprintf("127.0.0.1:%d", c.port), "--socket", c.sock)
	c.await("the node is linked", func() bool {
		if c.node.Ended() {
			c.t.Fatalf("the node daemon has ended:\n%s", c.node.Tail(20))
		}
		out, _ := c.run(0, "sinfo", "-h", "-o%t").end()
		return out == "idle\n"
	})
	return c.node
}
