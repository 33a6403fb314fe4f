package greet

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/internal/version"
)

// Followed is the highest generation of the controller's state that this host has followed. Its methods may be called on nil,
// which follows every controller, and from any goroutine.
type Followed struct {
	host string
	keep func(g version.Generation, refused string) error

	mu      sync.Mutex
	have    version.Generation
	refused string
}

// NewFollowed starts with the stored generation. keep stores a higher one durably before it returns. keep also receives the
// reason why the controller that answers is not followed, and "" once it is followed again.
func NewFollowed(host string, have version.Generation, keep func(g version.Generation, refused string) error) *Followed {
	return &Followed{host: host, have: have, keep: keep}
}

// said returns the generation to send, or "".
func (f *Followed) said() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have.Number == 0 {
		return ""
	}
	return f.have.String()
}

// meet checks a controller by the header of its answer. A controller of another cluster is refused for another reason, if at all.
func (f *Followed) meet(head metadata.MD) error {
	v := head.Get(version.GenerationKey)
	if f == nil || len(v) == 0 {
		return nil
	}
	g := version.ParseGeneration(v[0])
	if g.Number == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := g.Outdated(f.host, f.have); err != nil {
		if f.refused != err.Error() && f.keep(f.have, err.Error()) == nil {
			f.refused = err.Error()
		}
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if g == f.have && f.refused == "" {
		return nil
	}
	if err := f.keep(g, ""); err != nil {
		return status.Errorf(codes.Unavailable, "cannot follow the controller: cannot store the generation of its state: %v", err)
	}
	f.have, f.refused = g, ""
	return nil
}
