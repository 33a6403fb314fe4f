// Package jointoken encodes the token with which a host joins a cluster once: `sluice token create` prints it, `sluice-noded
// --join` reads it.
//
// It holds the cluster and the addresses of its controllers, the fingerprint by which a host recognises the controller before
// sending anything, the host and role for which the token is valid, and the secret. It is one word, without characters that a shell
// or a chat program would change:
//
//	sluice-join-1.BASE64
//
// BASE64 (RFC 4648, URL alphabet, no padding) encodes a JSON object followed by the first bytes of its SHA-256, so that an
// incompletely copied token can be distinguished from one that is refused.
package jointoken

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

const prefix = "sluice-join-"

const version = "1."

// Limits of a token.
const (
	maxText        = 8 << 10
	maxControllers = 16
	maxWord        = 255 // names, addresses
	sumLen         = 4
	// SecretLen is the length of a secret, IDLen of an identifier in characters.
	SecretLen = 24
	maxID     = 64
)

// Token is the content of a token.
type Token struct {
	Cluster     string   `json:"cluster"`
	Controllers []string `json:"controllers"` // host:port
	Fingerprint []byte   `json:"authority"`   // SHA-256 of the authority's public key
	Node        string   `json:"node"`
	Role        string   `json:"role"` // as in certificates (package mtls)
	ID          string   `json:"id"`
	Secret      []byte   `json:"secret"`
}

// Text encodes a token.
func (t Token) Text() (string, error) {
	if err := t.check(); err != nil {
		return "", fmt.Errorf("cannot make a join token: %w", err)
	}
	b, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("cannot make a join token: %w", err)
	}
	sum := sha256.Sum256(b)
	return prefix + version + base64.RawURLEncoding.EncodeToString(append(b, sum[:sumLen]...)), nil
}

// Parse reads a token. It ignores white space around it and line breaks inside, which copying may add.
func Parse(text string) (t Token, err error) {
	defer func() {
		if err != nil {
			t, err = Token{}, fmt.Errorf("cannot read the join token: %w", err)
		}
	}()
	if len(text) > maxText {
		return t, fmt.Errorf("it has %d characters, and none has more than %d", len(text), maxText)
	}
	text = strings.Join(strings.Fields(text), "")
	rest, ok := strings.CutPrefix(text, prefix)
	switch {
	case text == "":
		return t, errors.New("it is empty")
	case !ok:
		return t, fmt.Errorf("it does not begin with %q; `sluice token create` on the controller prints one", prefix)
	case !strings.HasPrefix(rest, version):
		return t, errors.New("it is of another version of this program")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest[len(version):])
	if err != nil || len(b) <= sumLen {
		return t, errNotWhole
	}
	b, sum := b[:len(b)-sumLen], b[len(b)-sumLen:]
	if want := sha256.Sum256(b); !bytes.Equal(sum, want[:sumLen]) {
		return t, errNotWhole
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&t); err != nil {
		return t, err
	}
	if _, err := d.Token(); err != io.EOF {
		return t, errors.New("there is something behind it")
	}
	return t, t.check()
}

var errNotWhole = errors.New("it was not copied whole")

func (t *Token) check() error {
	for _, w := range []struct{ what, word string }{{"cluster", t.Cluster}, {"host", t.Node}, {"role", t.Role}} {
		if w.word == "" || len(w.word) > maxWord {
			return fmt.Errorf("its %s has %d characters", w.what, len(w.word))
		}
	}
	switch {
	case t.ID == "" || len(t.ID) > maxID:
		return fmt.Errorf("its id has %d characters", len(t.ID))
	case len(t.Secret) != SecretLen:
		return fmt.Errorf("its secret has %d bytes, want %d", len(t.Secret), SecretLen)
	case len(t.Fingerprint) != sha256.Size:
		return fmt.Errorf("its fingerprint has %d bytes, want %d", len(t.Fingerprint), sha256.Size)
	case len(t.Controllers) == 0 || len(t.Controllers) > maxControllers:
		return fmt.Errorf("it names %d controllers", len(t.Controllers))
	}
	for _, c := range t.Controllers {
		if host, port, err := net.SplitHostPort(c); err != nil || host == "" || port == "" || len(c) > maxWord+6 {
			return fmt.Errorf("%q is no address of a controller", c)
		}
	}
	return nil
}
