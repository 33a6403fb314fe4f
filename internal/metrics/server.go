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
	headerTime = 10 * time.Second // also until the first request, and for the handshake
	answerTime = time.Minute
	idleTime   = 3 * time.Minute // Prometheus asks every minute or more often, and keeps its connection
	// Fresh is how long a page is good for all who ask for it, once it is made; one that took longer to make is good for longer (GoodFor).
	Fresh = time.Second
	// maxFresh bounds that.
	maxFresh = time.Minute
	// worthGzip is from which size on a page is compressed for who takes that.
	worthGzip = 4 << 10
)

// NodePort is the TCP port of nodes for metrics, unless their daemons are told otherwise.
const NodePort = "9342"

// Render writes a page; without names it leaves out whatever says who users are.
type Render func(p *Page, names bool) error

// Server serves pages by their paths.
type Server struct {
	Pages map[string]Render
	Rules func() Rules
	Log   *slog.Logger
	// TLS is what a listener that others reach is served with; nil: there is none.
	TLS *tls.Config

	// Now is what time it is.
	Now func() time.Time

	mu   sync.Mutex
	kept map[string]*kept
}

// kept is a page, made for all who ask while it is good.
type kept struct {
	mu          sync.Mutex
	span        Span
	kind        string
	plain, gzip []byte
}

// Span is when what was made is good.
type Span struct{ from, until time.Time }

// GoodFor is the span of what was begun and is ready now: as long as it took, so that at most half of the time goes into making it, and at
// least Fresh.
func GoodFor(begun, ready time.Time) Span {
	took := max(0, ready.Sub(begun))
	return Span{begun, begun.Add(took + min(max(Fresh, took), maxFresh))}
}

// Good reports whether now is in it. The clock may have been set back.
func (s Span) Good(now time.Time) bool { return !now.Before(s.from) && now.Before(s.until) }

// Loopback reports whether nobody but this machine reaches a listener.
func Loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// Serve serves a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	open := Loopback(l.Addr())
	if !open && s.TLS == nil {
		_ = l.Close()
		return fmt.Errorf("metrics are not served on %s: other hosts could read them, and there is no certificate", l.Addr())
	}
	h := &http.Server{Handler: s.handler(open), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		// HTTP/2 has had floods of its own, and a scrape is one request.
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

// visitorKey finds the connection of a request.
type visitorKey struct{}

// refuse ends the connection with an answer: only who is told something keeps one.
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
		// On a loopback address all are told something, and one who is there to take all places is not to keep them.
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
	if s.kept[key] == nil { // paths are those of Pages, so there are few
		s.kept[key] = &kept{}
	}
	return s.kept[key]
}

// get is the page as it is, or made anew. Those who ask while it is made wait for it.
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
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is one that there is
	_, _ = z.Write(text)                            // a Buffer takes all
	_ = z.Close()
	return b.Bytes()
}
