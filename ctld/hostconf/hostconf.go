// Package hostconf makes the configuration for hosts that have no files: one signed bundle of the files that the controller has read, byte
// for byte, and of the programs below the directory of slurm.conf that they name. noded/hostconf is the other side.
//
//	bundle, notes, err := hostconf.Make(config, seen)
//	current.Set(bundle, err)
//	hash, message, err := current.Now()
//
// A bundle is sent over Sync before the settings that depend on it, so that no host runs an old prolog with new settings. A host that has
// none yet, or is not a node, calls NodeAPI/Configuration.
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

// Limits. A bundle travels in one message; a node accepts 8 MiB, and so does its root half.
const (
	MaxBundle  = 6 << 20
	MaxProgram = 2 << 20
	MaxFiles   = 1024
)

// elsewhere is the directory for files from outside the directory of slurm.conf.
const elsewhere = "elsewhere"

// Program is a program that a configuration names, for every node to run.
type Program struct {
	Key, Path string
}

// Programs returns the programs of nodes. The pattern of a Prolog or Epilog may match several files; of RebootProgram the first word
// counts.
func Programs(c *conf.Config) []Program {
	reboot := ""
	if words := strings.Fields(c.RebootProgram); len(words) > 0 {
		reboot = words[0]
	}
	all := []Program{{"Prolog", c.Prolog}, {"Epilog", c.Epilog}, {"TaskProlog", c.TaskProlog}, {"TaskEpilog", c.TaskEpilog},
		{"HealthCheckProgram", c.HealthCheckProgram}, {"UnkillableStepProgram", c.UnkillableStepProgram}, {"RebootProgram", reboot}}
	return slices.DeleteFunc(all, func(p Program) bool { return !filepath.IsAbs(p.Path) })
}

// maker builds one bundle.
type maker struct {
	dirs   []string // of slurm.conf, and of the file that it links to
	owners []uint32
	out    *pb.ConfigurationBundle
	names  map[string]bool
	size   int
	faults []error
}

// Make builds a bundle from the files that c was read from, with their contents by path in seen, and the programs. owners are the uids,
// besides root's, that may have written programs. The bundle is as complete as possible; each fault explains why hosts without files do not
// get a program, and the consequence. Only an oversized bundle is an error.
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

// confMode keeps files that users here cannot read from users of other hosts.
func confMode(path string) uint32 {
	if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o004 == 0 {
		return 0o600
	}
	return 0o644
}

// rel returns the path below a directory of slurm.conf, "" if there is none.
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
		name = "slurm.conf" // whatever its name here: commands look for that name
	}
	if name == "" || m.names[name] || strings.HasPrefix(name, elsewhere+"/") {
		name = filepath.Join(elsewhere, path)
	}
	m.names[name] = true
	// If slurm.conf is a link, files are in two directories here; a host has one.
	if len(m.dirs) > 1 && m.rel(path) != "" {
		path = filepath.Join(m.dirs[0], m.rel(path))
	}
	sum := sha256.Sum256(data)
	m.out.Files = append(m.out.Files, &pb.ConfigurationFile{Path: path, Name: name, Mode: mode, Data: data, Sha256: sum[:]})
	m.size += len(data)
}

// program adds the files of a program below the directory of slurm.conf. All others are each host's own.
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

// read returns a program that only root and the owners can have changed: it runs as root on the hosts.
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
