package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of a listener.
const (
	maxHeader  = 16 << 10
	headerTime = 10 * time.Second // also until the first request, and for the TLS handshake
	answerTime = time.Minute
	idleTime   = 3 * time.Minute // Prometheus scrapes every minute or more often, and keeps its connection
	// Fresh is how long a rendered page is served; longer if rendering took longer (GoodFor).
	Fresh = time.Second
	// maxFresh bounds that extension.
	maxFresh = time.Minute
	// worthGzip is the size from which on a page is compressed for clients that accept gzip.
	worthGzip = 4 << 10
)

// NodePort is the default TCP port of metrics on nodes.
const NodePort = "9342"

// Render writes a page; without names it leaves out values that identify users.
type Render func(p *Page, names bool) error

// Server serves pages by path.
type Server struct {
	Pages map[string]Render
	Rules func() Rules
	Log   *slog.Logger
	// TLS is for listeners that other hosts can reach; nil: such listeners are refused.
	TLS *tls.Config

	// Now returns the current time.
	Now func() time.Time

	mu   sync.Mutex
	kept map[string]*kept
}

// kept is a rendered page, served to all readers while it is valid.
type kept struct {
	mu          sync.Mutex
	span        Span
	kind        string
	plain, gzip []byte
}

// Span is a period of validity.
type Span struct{ from, until time.Time }

// GoodFor returns the validity of a page rendered from begun to ready. It lasts as long as rendering took, so that rendering takes
// at most half of the time, but at least Fresh.
func GoodFor(begun, ready time.Time) Span {
	took := max(0, ready.Sub(begun))
	return Span{begun, begun.Add(took + min(max(Fresh, took), maxFresh))}
}

// Good reports whether now is within the span. It checks both ends, because the clock may have been set back.
func (s Span) Good(now time.Time) bool { return !now.Before(s.from) && now.Before(s.until) }

// Loopback reports whether only this machine can reach a listener.
func Loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// Serve serves l until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	open := Loopback(l.Addr())
	if !open && s.TLS == nil {
		_ = l.Close()
		return fmt.Errorf("metrics are not served on %s: other hosts could read them, and there is no certificate", l.Addr())
	}
	h := &http.Server{Handler: s.handler(open), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		// No HTTP/2: it has flooding attacks of its own, and a scrape is one request.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, visitorKey{}, visitorOf(c))
		}}
	l = &door{Listener: l, each: !open}
	if !open {
		l = tls.NewListener(l, s.TLS)
	}
	stopped := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stopped()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		_ = h.Close()
		return err
	}
	return nil
}

// visitorKey is the context key of a request's connection.
type visitorKey struct{}

// refuse answers and closes the connection: only successful clients keep theirs.
func refuse(w http.ResponseWriter, text string, status int) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

func (s *Server) handler(open bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		rules := s.Rules()
		if rules.Off {
			refuse(w, "404 page not found", http.StatusNotFound)
			return
		}
		names, err := rules.reads(q, open)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="metrics"`)
			refuse(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			refuse(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		render, ok := s.Pages[q.URL.Path]
		if !ok {
			refuse(w, "404 page not found", http.StatusNotFound)
			return
		}
		// On a loopback address everybody gets an answer, so an answer alone must not protect a connection: a client could then
		// hold all places.
		if v, _ := q.Context().Value(visitorKey{}).(*visitor); v != nil && (!open || q.Header.Get("Authorization") != "") {
			v.trust()
		}
		s.answer(w, q, render, names)
	})
}

func (s *Server) answer(w http.ResponseWriter, q *http.Request, render Render, names bool) {
	k := s.page(fmt.Sprintf("%s %t", q.URL.Path, names))
	kind, plain, packed, err := k.get(s.Now, func(p *Page) error { return render(p, names) })
	if err != nil {
		s.Log.Warn("cannot make a page of metrics", "page", q.URL.Path, "err", err)
		http.Error(w, "the page cannot be made; the log of the daemon says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Vary", "Accept-Encoding")
	if packed != nil && strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		plain = packed
	}
	_, _ = w.Write(plain)
}

func (s *Server) page(key string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]*kept{}
	}
	if s.kept[key] == nil { // few keys: only paths in Pages get here
		s.kept[key] = &kept{}
	}
	return s.kept[key]
}

// get returns the page, rendering it if necessary. Concurrent readers wait for the rendering.
func (k *kept) get(clock func() time.Time, render func(*Page) error) (kind string, plain, packed []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	begun := clock()
	if k.plain != nil && k.span.Good(begun) {
		return k.kind, k.plain, k.gzip, nil
	}
	p := &Page{kind: textFormat}
	if err := render(p); err != nil {
		return "", nil, nil, err
	}
	k.kind, k.plain, k.gzip = p.kind, p.text, pack(p.text)
	k.span = GoodFor(begun, clock())
	return k.kind, k.plain, k.gzip, nil
}

func pack(text []byte) []byte {
	if len(text) < worthGzip {
		return nil
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(text)                            // a Buffer never fails
	_ = z.Close()
	return b.Bytes()
}
