package metrics

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// opened is a door on a port of its own, and how to come to it from an address of this machine.
func opened(t *testing.T, each bool) (*door, func(from string) net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &door{Listener: l, each: each}, func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		c, err := d.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

func admit(t *testing.T, d *door) *visitor {
	t.Helper()
	c, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return visitorOf(c)
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	_, err := c.Read(make([]byte, 1))
	if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
		t.Errorf("a connection is open that should not be: %v", err)
	}
}

// TestOneAddressHasFewPlaces: one host that shows nothing does not shut others out; one that shows a token may have more.
func TestOneAddressHasFewPlaces(t *testing.T) {
	d, dial := opened(t, true)
	for range maxStrangers {
		dial("127.0.0.2")
		admit(t, d)
	}
	over := dial("127.0.0.2")
	for range 2 * maxStrangers {
		dial("127.0.0.3")
		v := admit(t, d)
		if v.from.String() != "127.0.0.3" {
			t.Fatalf("one too many of %s was let in", v.from)
		}
		v.trust()
		v.trust()
	}
	ended(t, over)
	if d.known != 2*maxStrangers || len(d.strangers) != maxStrangers {
		t.Errorf("%d known, %d strangers", d.known, len(d.strangers))
	}
}

// TestStrangersGiveWay: with all places taken, who came first and has shown nothing goes, and who has shown a token stays.
func TestStrangersGiveWay(t *testing.T) {
	d, dial := opened(t, false)
	dial("127.0.0.1")
	known := admit(t, d)
	known.trust()
	first := dial("127.0.0.1")
	admit(t, d)
	for range maxConnections - 1 {
		dial("127.0.0.1")
		admit(t, d)
	}
	ended(t, first)
	if known.gone || d.known+len(d.strangers) != maxConnections {
		t.Errorf("known gone: %t; %d known, %d strangers", known.gone, d.known, len(d.strangers))
	}
	for len(d.strangers) > 0 {
		d.strangers[0].trust()
	}
	over := dial("127.0.0.1")
	go func() {
		if c, err := d.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	ended(t, over)
	for range 2 {
		_ = known.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known != maxConnections-1 {
		t.Errorf("%d known", d.known)
	}
}

// TestRefusedConnectionsEnd: only who is told something keeps a connection.
func TestRefusedConnectionsEnd(t *testing.T) {
	s := serve(t, "Pages made.")
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for _, one := range []struct {
		path, token string
		status      int
	}{{"", "", 200}, {"/no", "", 404}, {"", "wrong", 401}} {
		q, err := http.NewRequest("GET", s.url+one.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if one.token != "" {
			q.Header.Set("Authorization", "Bearer "+one.token)
		}
		a, err := c.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != one.status || a.Close != (one.status != 200) {
			t.Errorf("%q %q: %d, closed %t", one.path, one.token, a.StatusCode, a.Close)
		}
	}
}

// TestCostlyPageIsGoodForLonger: those who waited while it was made get it, and so do those who come as long afterwards as it took.
func TestCostlyPageIsGoodForLonger(t *testing.T) {
	clock, made := time.Unix(1000, 0), 0
	k := &kept{}
	get := func(at time.Time) int {
		t.Helper()
		clock = at
		if _, _, _, err := k.get(func() time.Time { return clock }, func(p *Page) error {
			made++
			clock = clock.Add(4 * time.Second)
			p.Gauge("x", strings.Repeat("x", 10)).Add(1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return made
	}
	begun := clock
	for _, c := range []struct {
		after time.Duration
		made  int
	}{{0, 1}, {2 * time.Second, 1}, {4 * time.Second, 1}, {7 * time.Second, 1}, {8 * time.Second, 2}} {
		if n := get(begun.Add(c.after)); n != c.made {
			t.Errorf("%s after it was begun it has been made %d times, not %d", c.after, n, c.made)
		}
	}
	if get(begun.Add(-time.Hour)) != 3 {
		t.Error("the clock was set back, and the page is still good")
	}
	if g := GoodFor(begun, begun.Add(24*time.Hour)); g.Good(begun.Add(24*time.Hour + maxFresh)) {
		t.Error("a page is good for a day")
	}
}

// TestWhoIsTrusted: on a loopback address one who has shown nothing may read, and gives way all the same.
func TestWhoIsTrusted(t *testing.T) {
	s := serve(t, "Pages made.")
	for _, c := range []struct {
		token string
		open  bool
		known int
	}{{"", true, 0}, {token, true, 1}, {token, false, 1}} {
		here, there := net.Pipe()
		v := &visitor{Conn: here, door: &door{}}
		v.door.strangers = []*visitor{v}
		q := httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil)
		if c.token != "" {
			q.Header.Set("Authorization", "Bearer "+c.token)
		}
		q = q.WithContext(context.WithValue(t.Context(), visitorKey{}, v))
		w := httptest.NewRecorder()
		s.handler(c.open).ServeHTTP(w, q)
		if w.Code != 200 || v.door.known != c.known || len(v.door.strangers) != 1-c.known {
			t.Errorf("%q, loopback %t: %d, %d known", c.token, c.open, w.Code, v.door.known)
		}
		_, _ = here.Close(), there.Close()
	}
}
