package hostconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/internal/trusted"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

const (
	kept    = "bundle.pb"
	current = "current"
	fresh   = "new-" // prefix of names of incomplete files
)

// ErrNone reports that no configuration was stored yet.
var ErrNone = errors.New("no configuration has been fetched yet")

// Store is a directory that only root (or the daemon's user) writes to.
type Store struct {
	Dir       string
	Authority []byte // the cluster's CA, PEM
}

// Load returns the last good copy, ErrNone if there never was one.
func (s *Store) Load() (*Bundle, error) {
	raw, err := os.ReadFile(filepath.Join(s.Dir, kept))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the last configuration: %w", err)
	}
	c := &pb.Configuration{}
	if err := proto.Unmarshal(raw, c); err != nil || len(c.Bundle) == 0 {
		return nil, fmt.Errorf("cannot read the last configuration, %s: it is damaged", filepath.Join(s.Dir, kept))
	}
	b, err := open(c.Bundle, s.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.Dir, kept), err)
	}
	return b, s.unpack(b)
}

// Put verifies and stores a configuration. On an error nothing changes.
func (s *Store) Put(c *pb.Configuration) (*Bundle, error) {
	if err := Verify(s.Authority, c); err != nil {
		return nil, err
	}
	b, err := open(c.Bundle, s.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := b.Config(); err != nil {
		return nil, fmt.Errorf("this node daemon cannot use the configuration; is it older than the controller? %w", err)
	}
	raw, err := proto.Marshal(c)
	if err == nil {
		err = s.ready()
	}
	if err != nil {
		return nil, err
	}
	before, _ := os.Readlink(filepath.Join(s.Dir, current))
	if err := s.make(b); err != nil {
		return nil, err
	}
	if err := s.replace(kept, func(path string) error { return writeFile(path, raw, 0o600) }); err != nil {
		return nil, fmt.Errorf("cannot store the configuration: %w", err)
	}
	if err := s.lead(b); err != nil {
		return nil, err
	}
	s.sweep(b, before)
	return b, nil
}

// ready creates the directory. Users need search permission to reach TaskProlog.
func (s *Store) ready() error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot create the directory of the configuration: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	if _, err := trusted.Path(s.Dir); err != nil {
		return fmt.Errorf("cannot store the configuration in %s: %w", s.Dir, err)
	}
	return nil
}

// unpack makes sure that the stored bundle is unpacked as well.
func (s *Store) unpack(b *Bundle) error {
	if err := errors.Join(s.ready(), s.make(b)); err != nil {
		return err
	}
	if to, err := os.Readlink(filepath.Join(s.Dir, current)); err == nil && to == folderOf(b) {
		return nil
	}
	return s.lead(b)
}

// folderOf returns the name of a bundle's directory.
func folderOf(b *Bundle) string { return b.Hash[:32] }

// make unpacks a bundle into its directory, unless it is there intact.
func (s *Store) make(b *Bundle) error {
	dir := filepath.Join(s.Dir, folderOf(b))
	if b.same(dir) {
		return nil
	}
	tmp, err := os.MkdirTemp(s.Dir, fresh)
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err == nil {
		err = b.write(tmp)
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		if tmp != "" {
			_ = os.RemoveAll(tmp)
		}
		return fmt.Errorf("cannot unpack the configuration: %w", err)
	}
	return syncDir(s.Dir)
}

// lead makes "current" a link to a bundle's directory.
func (s *Store) lead(b *Bundle) error {
	if err := s.replace(current, func(path string) error { return os.Symlink(folderOf(b), path) }); err != nil {
		return fmt.Errorf("cannot put the configuration in force: %w", err)
	}
	return nil
}

// replace creates something beside name and renames it.
func (s *Store) replace(name string, make func(path string) error) error {
	tmp := filepath.Join(s.Dir, fresh+name)
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := make(tmp); err != nil {
		_ = os.RemoveAll(tmp)
		return err
	}
	if err := os.Rename(tmp, filepath.Join(s.Dir, name)); err != nil {
		return err
	}
	return syncDir(s.Dir)
}

// sweep removes everything but the current and the previous configuration: a program of the latter may still be running.
func (s *Store) sweep(b *Bundle, before string) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		old := e.IsDir() && len(e.Name()) == len(folderOf(b)) && e.Name() != folderOf(b) && e.Name() != before
		if old || strings.HasPrefix(e.Name(), fresh) {
			_ = os.RemoveAll(filepath.Join(s.Dir, e.Name()))
		}
	}
}

// Publish copies the files of a configuration, except programs, to the directory where commands look for them. Each file is
// replaced by a rename.
func (b *Bundle) Publish(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot publish slurm.conf for commands: %w", err)
	}
	if os.Geteuid() == 0 {
		if _, err := trusted.Path(dir); err != nil {
			return fmt.Errorf("cannot publish slurm.conf for commands: %w", err)
		}
	}
	for name, f := range b.names {
		if program(f) {
			continue
		}
		path := filepath.Join(dir, name)
		tmp := filepath.Join(filepath.Dir(path), fresh+filepath.Base(path))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			_ = os.Remove(tmp)
			err = writeFile(tmp, f.Data, fs.FileMode(f.Mode))
		}
		if err == nil {
			err = os.Rename(tmp, path)
		}
		if err != nil {
			return fmt.Errorf("cannot publish %s for commands: %w", name, err)
		}
	}
	return nil
}

// Main returns the name of slurm.conf in a directory filled by Publish.
func (b *Bundle) Main() string { return b.files[b.Path].Name }
