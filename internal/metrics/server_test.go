package metrics

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const token = "0123456789abcdef0123456789abcdef"

// served is a Server on a port of its own, with rules that a test may change.
type served struct {
	*Server
	mu    sync.Mutex
	rules Rules
	made  int
	clock time.Time
	url   string
}

func (s *served) set(f func(*Rules)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.rules)
}

func serve(t *testing.T, text string) *served {
	t.Helper()
	tokens, err := parseTokens("tokens", token+"\n")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{rules: Rules{Tokens: tokens}, clock: time.Unix(1000, 0)}
	s.Server = &Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Rules: func() Rules { s.mu.Lock(); defer s.mu.Unlock(); return s.rules },
		Now:   func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.clock },
		Pages: map[string]Render{"/metrics": func(p *Page, names bool) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.made++
			p.Gauge("made", text).Add(float64(s.made))
			if names {
				p.Gauge("jobs", "Jobs.", "user").Add(1, "alice")
			}
			return nil
		}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String() + "/metrics"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// get asks with headers ("Name: value").
func get(t *testing.T, url string, headers ...string) (status int, body string, h http.Header) {
	t.Helper()
	q, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if q.Header.Set(name, value); name == "Host" {
			q.Host = value
		}
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	a, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b), a.Header
}

func TestWhoReads(t *testing.T) {
	s := serve(t, "Pages made.")
	port := strings.TrimSuffix(s.url[strings.LastIndex(s.url, ":"):], "/metrics")
	for _, c := range []struct {
		name    string
		private bool
		headers []string
		status  int
		names   bool
	}{
		{"anybody on this machine", false, nil, 200, true},
		{"by name", false, []string{"Host: localhost" + port}, 200, true},
		{"users are private", true, nil, 200, false},
		{"users are private, a token", true, []string{"Authorization: Bearer " + token}, 200, true},
		{"a wrong token", false, []string{"Authorization: Bearer " + token + "0"}, 401, false},
		{"no token", false, []string{"Authorization: Basic Ym9iOmJvYg=="}, 401, false},
		{"a page in a browser", false, []string{"Host: evil.example" + port}, 401, false},
		{"a page in a browser with a token", true, []string{"Host: evil.example" + port, "Authorization: bearer " + token}, 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.set(func(r *Rules) { r.Private = c.private })
			status, body, _ := get(t, s.url, c.headers...)
			if status != c.status || strings.Contains(body, "alice") != c.names {
				t.Errorf("status %d, want %d; names %t, want %t:\n%s", status, c.status, !c.names, c.names, body)
			}
		})
	}
	s.set(func(r *Rules) { r.Off = true })
	if status, _, _ := get(t, s.url, "Authorization: Bearer "+token); status != 404 {
		t.Errorf("it is off, and the answer is %d", status)
	}
}

func TestOtherPaths(t *testing.T) {
	s := serve(t, "Pages made.")
	for _, path := range []string{"", "/jobs", "/../metrics"} {
		if status, _, _ := get(t, s.url+path); (status == 200) != (path == "") {
			t.Errorf("%s%s: %d", s.url, path, status)
		}
	}
	a, err := http.Post(s.url, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", a.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestPageIsMadeOnceASecond: however often it is asked for, and by how many.
func TestPageIsMadeOnceASecond(t *testing.T) {
	s := serve(t, "Pages made.")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { get(t, s.url) })
	}
	wg.Wait()
	s.mu.Lock()
	made := s.made
	s.clock = s.clock.Add(Fresh)
	s.mu.Unlock()
	if made != 1 {
		t.Errorf("20 readers within a second, and the page was made %d times", made)
	}
	if _, body, _ := get(t, s.url); !strings.Contains(body, "made 2\n") {
		t.Errorf("a second later it is still the old page:\n%s", body)
	}
}

func TestCompressed(t *testing.T) {
	s := serve(t, strings.Repeat("a very long help ", 1000))
	_, plain, _ := get(t, s.url)
	_, packed, h := get(t, s.url, "Accept-Encoding: gzip")
	if h.Get("Content-Encoding") != "gzip" || len(packed) >= len(plain) {
		t.Fatalf("%d bytes, %q; plain %d", len(packed), h.Get("Content-Encoding"), len(plain))
	}
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != plain {
		t.Errorf("%v: %d bytes, not %d", err, len(b), len(plain))
	}
}

// TestOthersNeedTLS: who is not on this machine gets nothing over an open connection, certificate or none.
func TestOthersNeedTLS(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if err := s.Serve(context.Background(), l); err == nil || !strings.Contains(err.Error(), "there is no certificate") {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", l.Addr().(*net.TCPAddr).Port)); err == nil {
		_ = c.Close()
		t.Error("it listens all the same")
	}
	if (&Rules{}).known(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}) {
		t.Error("a certificate that was not verified is believed")
	}
}

func TestReadTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"# Prometheus\n\n" + token + "\nsecondtoken-secondtoken\n", 0o600, ""},
		{token + "\n", 0o640, "chmod 600"},
		{token + "\n", 0o604, "chmod 600"},
		{"short\n", 0o600, "tokens:1: a token has at least 16 characters"},
		{"# none\n", 0o600, "has none"},
		{token + " " + token + "\n", 0o600, "tokens:1: a token has no spaces"},
	} {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		tokens, err := ReadTokens(path)
		if c.want == "" {
			if err != nil || len(tokens) != 2 || !tokens.has("secondtoken-secondtoken") || tokens.has("# Prometheus") || tokens.has("") {
				t.Errorf("%q: %v, %d tokens", c.text, err, len(tokens))
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %o: %v, want %s", c.text, c.mode, err, c.want)
		}
	}
}

// TestPageIsReadBack: what somebody calls himself does not break a page, nor add a line to it.
func TestPageIsReadBack(t *testing.T) {
	odd := []string{"a\"b", "a\\b", "a\nb 1", "é", "a\xffb", "", "{}", "a,b=\"c\""}
	p := &Page{}
	p.Gauge("users", "Back\\slash and\nline \"quoted\".", "user", "n")
	for i, name := range odd {
		p.Add(float64(i)+.5, name, fmt.Sprint(i))
	}
	p.Counter("ends_total", "Ends.").Add(1 << 60)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(p.Bytes())))
	if err != nil {
		t.Fatalf("%v:\n%s", err, p.Bytes())
	}
	if got := families["users"].GetHelp(); got != "Back\\slash and\nline \"quoted\"." {
		t.Errorf("help %q", got)
	}
	list := families["users"].GetMetric()
	if len(list) != len(odd) || len(families) != 2 || families["ends_total"].GetMetric()[0].GetCounter().GetValue() != 1<<60 {
		t.Fatalf("%d series, %d families", len(list), len(families))
	}
	for i, m := range list {
		if got := m.GetLabel()[0].GetValue(); got != strings.ToValidUTF8(odd[i], "\uFFFD") || m.GetGauge().GetValue() != float64(i)+.5 {
			t.Errorf("%q became %q, %v", odd[i], got, m.GetGauge().GetValue())
		}
	}
}
