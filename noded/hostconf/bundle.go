// Package hostconf stores the last configuration of a host without files of its own: verified, and unpacked where programs can be
// run. ctld/hostconf is the other side.
//
//	store := hostconf.Store{Dir: spool + "/conf", Authority: pem}
//	b, err := store.Load()         // the last good copy, for a start without controller
//	b, err = store.Put(received)   // all of it or nothing
//	cfg, err := b.Config()
//
// The directory has bundle.pb, which is authoritative and is replaced by a rename, and for each bundle a directory with its
// files, named by its hash. "current" is a link to the one in force, so that a running job's TaskEpilog keeps its path. Unpacked
// files are compared with bundle.pb at each start, and recreated where they differ.
package hostconf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/mtls"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Limits of a bundle. The controller keeps well below them.
const (
	maxBundle = 7 << 20
	maxFiles  = 4096
	maxPath   = 1024
)

// Bundle is one configuration. It is immutable.
type Bundle struct {
	Hash string
	Path string // path of slurm.conf on the controller's host
	// Dir is the directory of its files, as running jobs may know it.
	Dir   string
	files map[string]*pb.ConfigurationFile // by the path on the controller's host
	names map[string]*pb.ConfigurationFile // by the name here
}

// open decodes a bundle and checks everything that can be checked of it.
func open(bundle []byte, dir string) (*Bundle, error) {
	if len(bundle) > maxBundle {
		return nil, fmt.Errorf("the configuration has %d bytes, more than the limit of %d", len(bundle), maxBundle)
	}
	m := &pb.ConfigurationBundle{}
	if err := proto.Unmarshal(bundle, m); err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if len(m.Files) > maxFiles {
		return nil, fmt.Errorf("the configuration has %d files, more than the limit of %d", len(m.Files), maxFiles)
	}
	b := &Bundle{Hash: Hash(bundle), Path: m.Path, Dir: filepath.Join(dir, current),
		files: map[string]*pb.ConfigurationFile{}, names: map[string]*pb.ConfigurationFile{}}
	for _, f := range m.Files {
		if err := b.add(f); err != nil {
			return nil, err
		}
	}
	if b.files[b.Path] == nil {
		return nil, fmt.Errorf("the configuration lacks its slurm.conf, %s", b.Path)
	}
	for name := range b.names { // a file and a directory with the same name could not be unpacked
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			if b.names[dir] != nil {
				return nil, fmt.Errorf("the configuration has %s both as a file and as a directory", dir)
			}
		}
	}
	return b, nil
}

// Hash names a bundle.
func Hash(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return hex.EncodeToString(sum[:])
}

func (b *Bundle) add(f *pb.ConfigurationFile) error {
	sum := sha256.Sum256(f.Data)
	switch {
	case !filepath.IsLocal(f.Name), filepath.Clean(f.Name) != f.Name, f.Name == ".", len(f.Name) > maxPath, strings.ContainsRune(f.Name, 0):
		return fmt.Errorf("the configuration has a file named %.100q, which is not below its directory", f.Name)
	case !filepath.IsAbs(f.Path) || len(f.Path) > maxPath:
		return fmt.Errorf("the configuration has a file at %.100q, which is not an absolute path", f.Path)
	case b.files[f.Path] != nil || b.names[f.Name] != nil:
		return fmt.Errorf("the configuration has the file %s twice", f.Path)
	case f.Mode&^0o755 != 0 || f.Mode&0o400 == 0:
		return fmt.Errorf("the configuration has the file %s with the mode %#o", f.Path, f.Mode)
	case !bytes.Equal(sum[:], f.Sha256):
		return fmt.Errorf("the file %s of the configuration is damaged: its SHA-256 differs", f.Path)
	}
	b.files[f.Path], b.names[f.Name] = f, f
	return nil
}

// Config parses the configuration.
func (b *Bundle) Config() (*conf.Config, error) {
	return conf.Load(b.Path, conf.Options{ReadFile: func(path string) ([]byte, error) {
		f := b.files[path]
		if f == nil || program(f) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return f.Data, nil
	}})
}

func program(f *pb.ConfigurationFile) bool { return f.Mode&0o111 != 0 }

// Local returns the path here of a program, or pattern of programs, that the configuration names; a path outside this
// configuration is the host's own and stays.
func (b *Bundle) Local(path string) string {
	if b == nil || path == "" {
		return path
	}
	if f := b.files[path]; f != nil && program(f) {
		return filepath.Join(b.Dir, f.Name)
	}
	if !strings.ContainsAny(path, "*?[") {
		return path
	}
	for _, f := range b.files {
		if ok, err := filepath.Match(path, f.Path); err != nil || !ok || !program(f) {
			continue
		}
		// All matches are at the same depth below the same directories, which have the same names here.
		if dir, ok := strings.CutSuffix(f.Path, f.Name); ok {
			if rest, below := strings.CutPrefix(path, dir); below {
				return filepath.Join(b.Dir, rest)
			}
		}
	}
	return path
}

// Verify checks that a controller of the CA has signed a configuration.
func Verify(authority []byte, c *pb.Configuration) error {
	if err := mtls.Verify(authority, c.GetCertificate(), c.GetSignature(), c.GetBundle()); err != nil {
		return fmt.Errorf("the configuration does not come from the controller: %w", err)
	}
	return nil
}

// write unpacks the bundle into an existing empty directory.
func (b *Bundle) write(dir string) error {
	var dirs []string
	for name, f := range b.names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := writeFile(path, f.Data, fs.FileMode(f.Mode)); err != nil {
			return err
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, d := range append(dirs, dir) {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a directory has the correct files.
func (b *Bundle) same(dir string) bool {
	for name, f := range b.names {
		path := filepath.Join(dir, name)
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode() != fs.FileMode(f.Mode) || fi.Size() != int64(len(f.Data)) {
			return false
		}
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, f.Data) {
			return false
		}
	}
	return true
}

func writeFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
