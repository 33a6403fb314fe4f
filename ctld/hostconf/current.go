package hostconf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Hash returns the identity of a bundle.
func Hash(bundle []byte) string {
	if bundle == nil {
		return ""
	}
	sum := sha256.Sum256(bundle)
	return hex.EncodeToString(sum[:])
}

// signFor is the time for which a signature is reused: its certificate is replaced now and then.
const signFor = time.Hour

// Current is the present bundle. Its methods may be called from any goroutine.
type Current struct {
	sign func([]byte) (signature, certificate []byte, err error)

	mu      sync.Mutex
	hash    string
	bundle  []byte
	why     error // why there is none
	signed  *pb.Configuration
	at      time.Time
	changed chan struct{}
}

// NewCurrent returns a Current without a bundle.
func NewCurrent(sign func([]byte) (signature, certificate []byte, err error)) *Current {
	return &Current{sign: sign, why: errors.New("there is no configuration yet"), changed: make(chan struct{})}
}

// Set replaces the bundle, or sets the reason why there is none.
func (c *Current) Set(bundle []byte, why error) {
	if why != nil {
		bundle = nil
	}
	hash := Hash(bundle)
	c.mu.Lock()
	defer c.mu.Unlock()
	news := hash != c.hash
	c.hash, c.bundle, c.why = hash, bundle, why
	if news {
		c.signed = nil
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// Now returns the present bundle, signed. changed is closed when it is replaced.
func (c *Current) Now() (hash string, signed *pb.Configuration, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bundle == nil {
		return "", nil, c.changed, c.why
	}
	if c.signed == nil || time.Since(c.at) > signFor {
		signature, certificate, err := c.sign(c.bundle)
		if err != nil {
			return "", nil, c.changed, fmt.Errorf("cannot provide the configuration to hosts: %w", err)
		}
		c.signed, c.at = &pb.Configuration{Bundle: c.bundle, Signature: signature, Certificate: certificate}, time.Now()
	}
	return c.hash, c.signed, c.changed, nil
}
