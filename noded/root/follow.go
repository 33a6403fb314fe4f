package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// followedFile holds, as text, the highest generation of the controller's state that this host has followed. It distinguishes an
// outdated controller from one restored from a backup.
func (o *Options) followedFile() string {
	dir := o.Spool
	if dir == "" { // a login host, which stores its own certificate
		dir = o.TLS
	}
	return filepath.Join(dir, "generation")
}

// loadFollowed reads the stored generation. An unreadable file is an error, because without it this host might follow any
// controller.
func (r *Root) loadFollowed() error {
	path := r.o.followedFile()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read which controller this host has followed: %w", err)
	}
	if r.followed = version.ParseGeneration(string(b)); r.followed.Number == 0 {
		return fmt.Errorf("cannot read which controller this host has followed: %s is damaged; remove it when the controller is the right one",
			path)
	}
	return nil
}

// follow stores the generation of a controller that this host follows from now on, or shows why one is not followed.
func (r *Root) follow(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	f := o.GetFollow()
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := (version.Generation{Cluster: f.ClusterId, Number: f.Generation}); g != r.followed && f.Refused == "" {
		if err := g.Outdated("this host", r.followed); err != nil {
			return nil, err
		}
		if err := mtls.Write(r.o.followedFile(), 0o600, []byte(g.String()+"\n")); err != nil {
			return nil, err
		}
		r.log.Info("following a controller", "cluster", g.Cluster, "generation", g.Number)
		r.followed = g
	}
	if r.o.Status != nil {
		r.o.Status(f.Refused)
	}
	return nil, nil
}
