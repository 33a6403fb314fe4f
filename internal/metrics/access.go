package metrics

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/sluice-hpc/sluice/internal/mtls"
)

// MinToken is the minimum length of a token, in characters.
const MinToken = 16

// maxTokens and maxTokenFile bound the token file.
const (
	maxTokens    = 1000
	maxTokenFile = 1 << 20
)

// Tokens are the SHA-256 of the accepted tokens.
type Tokens [][]byte

// ReadTokens reads a file with one token per line; it ignores empty lines and lines that begin with #. It rejects a file that
// anyone but its owner can read, and tokens short enough to guess.
func ReadTokens(path string) (Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tokens for metrics: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the tokens for metrics: %w", err)
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("cannot read the tokens for metrics: %s is no regular file", path)
	case fi.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others than its owner may read or change %s, which has tokens for metrics: chmod 600 %s", path, path)
	case fi.Size() > maxTokenFile:
		return nil, fmt.Errorf("%s, which has tokens for metrics, is larger than 1 MiB", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return nil, fmt.Errorf("cannot read the tokens for metrics: %w", err)
	}
	return parseTokens(path, string(text))
}

func parseTokens(path, text string) (t Tokens, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case len(line) < MinToken:
			return nil, fmt.Errorf("%s:%d: a token has at least %d characters; openssl rand -hex 32 makes one", path, n, MinToken)
		case strings.ContainsAny(line, " \t"):
			return nil, fmt.Errorf("%s:%d: a token has no spaces: write one a line", path, n)
		case len(t) == maxTokens:
			return nil, fmt.Errorf("%s has more than %d tokens", path, maxTokens)
		}
		sum := sha256.Sum256([]byte(line))
		t = append(t, sum[:])
	}
	if len(t) == 0 {
		return nil, fmt.Errorf("%s, which is to have tokens for metrics, has none", path)
	}
	return t, nil
}

// has takes the same time for every token.
func (t Tokens) has(token string) bool {
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, one := range t {
		found |= subtle.ConstantTimeCompare(one, sum[:])
	}
	return found == 1
}

// Rules decide who may read which values.
type Rules struct {
	Off     bool // serve nothing to anybody
	Tokens  Tokens
	Private bool // values that name users are only for readers with a token or certificate
	// Accepts reports whether a certificate of the authority is valid, by its name and serial number; nil: all are.
	Accepts func(name, serial string) bool
}

// errNobody is the answer to a client without credentials.
var errNobody = errors.New("show a token of the daemon's file (Authorization: Bearer), or a certificate of the role \"monitor\"")

// reads reports whether the sender of a request may read, and whether that includes values that name users.
func (r *Rules) reads(q *http.Request, open bool) (names bool, err error) {
	if auth := q.Header.Get("Authorization"); auth != "" {
		scheme, token, _ := strings.Cut(auth, " ")
		if !strings.EqualFold(scheme, "Bearer") || !r.Tokens.has(strings.TrimSpace(token)) {
			return false, errors.New("the token is not known here")
		}
		return true, nil
	}
	if q.TLS != nil && r.known(q.TLS) {
		return true, nil
	}
	if !open {
		return false, errNobody
	}
	// DNS rebinding: a web page in a browser on this machine, whose name was made to resolve to it, must not read local metrics.
	if !addressed(q.Host) {
		return false, fmt.Errorf("the address has to be an IP address or localhost, not %.100q", q.Host)
	}
	return !r.Private, nil
}

func (r *Rules) known(s *tls.ConnectionState) bool {
	who, err := mtls.PeerOf(*s)
	if err != nil || who.Role != mtls.RoleMonitor {
		return false
	}
	return r.Accepts == nil || r.Accepts(who.Name, mtls.Serial(mtls.CertificateOf(*s)))
}

// addressed reports whether the Host of a request is a name that nobody can have pointed here: an IP address or localhost.
func addressed(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	return net.ParseIP(host) != nil || strings.EqualFold(host, "localhost")
}
