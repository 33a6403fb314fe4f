// Package hostconf makes the configuration for hosts that have no files: one signed bundle of what the controller has
// read, byte for byte, and of the programs below the directory of slurm.conf that it names. noded/hostconf is the other
// side.
//
//	bundle, notes, err := hostconf.Make(config, seen)
//	current.Set(bundle, err)
//	hash, message, err := current.Now()
//
// A bundle is sent over Sync before the settings that rest on it, so that no host runs an old prolog with new settings.
// A host that has nothing yet, or is no node, calls NodeAPI/Configuration.
package hostconf

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/trusted"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Bounds. A bundle travels in one message, of which a node takes 8 MiB, its root half as well.
const (
	MaxBundle  = 6 << 20
	MaxProgram = 2 << 20
	MaxFiles   = 1024
)

// elsewhere is below which files are kept that lie outside of the folder of slurm.conf.
const elsewhere = "elsewhere"

// Program is one that a configuration names, for every node to run.
type Program struct {
	Key, Path string
}

// Programs are those of nodes. The pattern of a Prolog or Epilog may match several files; of RebootProgram the first word counts.
func Programs(c *conf.Config) []Program {
	reboot := ""
	if words := strings.Fields(c.RebootProgram); len(words) > 0 {
		reboot = words[0]
	}
	all := []Program{{"Prolog", c.Prolog}, {"Epilog", c.Epilog}, {"TaskProlog", c.TaskProlog}, {"TaskEpilog", c.TaskEpilog},
		{"HealthCheckProgram", c.HealthCheckProgram}, {"UnkillableStepProgram", c.UnkillableStepProgram}, {"RebootProgram", reboot}}
	return slices.DeleteFunc(all, func(p Program) bool { return !filepath.IsAbs(p.Path) })
}

// maker puts one bundle together.
type maker struct {
	dirs   []string // of slurm.conf, and of the file that it is a link to
	owners []uint32
	out    *pb.ConfigurationBundle
	names  map[string]bool
	size   int
	faults []error
}

// Make puts together what c was read from, seen being the contents by path, with the programs. owners are the uids, besides root's, that
// may have written programs. The bundle is as good as it can be; each fault says of one program why hosts without files do not get it, and
// what will be missing there. Nothing but the size of the whole makes it fail.
func Make(c *conf.Config, seen map[string][]byte, owners ...uint32) (bundle []byte, faults []error, err error) {
	m := maker{owners: owners, out: &pb.ConfigurationBundle{Path: c.Path}, names: map[string]bool{}}
	m.dirs = []string{filepath.Dir(c.Path)}
	if real, err := filepath.EvalSymlinks(c.Path); err == nil && filepath.Dir(real) != m.dirs[0] {
		m.dirs = append(m.dirs, filepath.Dir(real))
	}
	for _, path := range c.Files {
		if data, there := seen[path]; there {
			m.add(path, confMode(path), data)
		}
	}
	for _, p := range Programs(c) {
		if err := m.program(p); err != nil {
			m.faults = append(m.faults, err)
		}
	}
	if len(m.out.Files) > MaxFiles {
		return nil, m.faults, fmt.Errorf("the configuration is too large for hosts without files: %d files, the limit is "+
			"%d", len(m.out.Files),
			MaxFiles)
	}
	slices.SortFunc(m.out.Files, func(a, b *pb.ConfigurationFile) int { return strings.Compare(a.Path, b.Path) })
	bundle, err = proto.MarshalOptions{Deterministic: true}.Marshal(m.out)
	if err == nil && len(bundle) > MaxBundle {
		err = fmt.Errorf("the configuration is too large for hosts without files: %d bytes, the limit is %d", len(bundle), MaxBundle)
	}
	return bundle, m.faults, err
}

// confMode keeps from users of other hosts what is kept from users here.
func confMode(path string) uint32 {
	if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o004 == 0 {
		return 0o600
	}
	return 0o644
}

// rel is the path below a folder of slurm.conf, "" for none.
func (m *maker) rel(path string) string {
	for _, dir := range m.dirs {
		if name, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(name) && name != "." {
			return name
		}
	}
	return ""
}

func (m *maker) add(path string, mode uint32, data []byte) {
	if slices.ContainsFunc(m.out.Files, func(f *pb.ConfigurationFile) bool { return f.Path == path }) {
		return
	}
	name := m.rel(path)
	if len(m.out.Files) == 0 {
		name = "slurm.conf" // however it is called here: commands look for that name
	}
	if name == "" || m.names[name] || strings.HasPrefix(name, elsewhere+"/") {
		name = filepath.Join(elsewhere, path)
	}
	m.names[name] = true
	// Beside a slurm.conf that is a link, files are found in two folders; on a host there is one.
	if len(m.dirs) > 1 && m.rel(path) != "" {
		path = filepath.Join(m.dirs[0], m.rel(path))
	}
	sum := sha256.Sum256(data)
	m.out.Files = append(m.out.Files, &pb.ConfigurationFile{Path: path, Name: name, Mode: mode, Data: data, Sha256: sum[:]})
	m.size += len(data)
}

// program adds the files of one that lies below the folder of slurm.conf. Others are every host's own.
func (m *maker) program(p Program) error {
	if m.rel(p.Path) == "" {
		return nil
	}
	paths := []string{p.Path}
	if strings.ContainsAny(p.Path, "*?[") {
		paths, _ = filepath.Glob(p.Path)
		if len(paths) == 0 {
			return fmt.Errorf("%s=%s: no file matches", p.Key, p.Path)
		}
	}
	var errs []error
	for _, path := range paths {
		data, mode, err := m.read(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", p.Key, p.Path, err))
			continue
		}
		m.add(path, mode, data)
	}
	return errors.Join(errs...)
}

// read gives a program that nobody but root and the owners can have changed: it runs as root on the hosts.
func (m *maker) read(path string) (data []byte, mode uint32, err error) {
	real, err := trusted.Path(path, m.owners...)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(real, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, 0, fmt.Errorf("%w: SlurmUser must be able to read the programs that hosts fetch", err)
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, err
	case !fi.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is not a file", real)
	case fi.Mode().Perm()&0o111 == 0:
		return nil, 0, fmt.Errorf("%s is not executable; chmod +x", real)
	case fi.Size() > MaxProgram:
		return nil, 0, fmt.Errorf("%s has %d bytes, the limit for hosts is %d: install it on the hosts, in another directory",
			real, fi.Size(), MaxProgram)
	}
	data, err = io.ReadAll(io.LimitReader(f, MaxProgram))
	if err == nil && m.size+len(data) > MaxBundle {
		err = fmt.Errorf("no room for %s: the limit for all files together is %d bytes", real, MaxBundle)
	}
	return data, uint32(fi.Mode().Perm() & 0o755), err
}
