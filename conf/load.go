package conf

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// DefaultPath is the path of slurm.conf if SLURM_CONF is not set.
const DefaultPath = "/etc/slurm/slurm.conf"

// Options changes how Load reads. The zero value is the default.
type Options struct {
	// ReadFile reads one file; nil: os.ReadFile. It returns fs.ErrNotExist for a missing file.
	ReadFile func(path string) ([]byte, error)
	// Seen is called with the content of each file that exists; may be nil.
	Seen func(path string, data []byte)
}

// loader holds intermediate results.
type loader struct {
	c           *Config
	dirs        []string // directories of the other files
	faults      Faults
	readFile    func(string) ([]byte, error)
	nodeDefault map[string]pair
	partDefault map[string]pair
	partitions  []*Partition
	nodeLines   int
	nodeSets    map[string]*nodeSet
	downNodes   []downNodes
	sum         hash.Hash // of the lines
}

// Load reads slurm.conf at path, and the files beside it that exist. The error is a Faults that names every fault with file and
// line, unless path itself cannot be read. With faults, only Ignored and Warnings of the Config are usable.
func Load(path string, o Options) (*Config, error) {
	dirs := []string{filepath.Dir(path)}
	if o.ReadFile == nil {
		o.ReadFile, dirs = os.ReadFile, folders(path)
	}
	l := &loader{c: defaults(), dirs: dirs, nodeDefault: map[string]pair{}, partDefault: map[string]pair{}, nodeSets: map[string]*nodeSet{}}
	l.c.Path = path
	l.readFile = func(name string) ([]byte, error) {
		if !slices.Contains(l.c.Files, name) {
			l.c.Files = append(l.c.Files, name)
		}
		data, err := o.ReadFile(name)
		if err == nil && o.Seen != nil {
			o.Seen(name, data)
		}
		return data, err
	}
	l.sum = sha256.New()
	r := l.reader(l.line)
	if err := r.read(path, 0); err != nil {
		return nil, fmt.Errorf("cannot read configuration %s: %s; set SLURM_CONF to the path of slurm.conf", path, cause(err))
	}
	l.finish()
	l.optional("gres.conf", l.gresLine)
	l.optional("cgroup.conf", l.cgroupLine)
	l.readTopology()
	l.readJobContainers()
	l.readOCI()
	l.c.Sum = hex.EncodeToString(l.sum.Sum(nil))
	l.constrain()
	l.check()
	if len(l.faults) == 0 {
		l.adviseDefaults()
	}
	l.inFileOrder(l.c.Warnings)
	l.inFileOrder(l.c.Advice)
	slices.SortStableFunc(l.c.Ignored, func(a, b Ignored) int {
		return cmp.Or(l.compare(a.File, a.Line, b.File, b.Line), strings.Compare(a.Key, b.Key))
	})
	if len(l.faults) > 0 {
		l.inFileOrder(l.faults)
		return l.c, l.faults
	}
	return l.c, nil
}

// inFileOrder sorts faults by the order of the files, then by line.
func (l *loader) inFileOrder(faults Faults) {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(l.compare(a.File, a.Line, b.File, b.Line), strings.Compare(a.Msg, b.Msg))
	})
}

// compare orders two places.
func (l *loader) compare(fileA string, lineA int, fileB string, lineB int) int {
	return cmp.Or(cmp.Compare(slices.Index(l.c.Files, fileA), slices.Index(l.c.Files, fileB)), cmp.Compare(lineA, lineB))
}

func (l *loader) reader(line func([]pair)) *reader {
	return &reader{readFile: l.readFile, faults: &l.faults, dirs: l.dirs, cluster: l.c.ClusterName, line: line, sum: l.sum}
}

// optional reads a file beside slurm.conf if it exists; if slurm.conf is a symbolic link, also beside its target. It returns the
// path of the file, "" if there is none.
func (l *loader) optional(name string, line func([]pair)) string {
	path, n := "", len(l.c.Files)
	var err error
	for _, dir := range l.dirs {
		path = filepath.Join(dir, name)
		r := l.reader(line)
		if name == topologyFile { // only the controller reads it
			r.sum = io.Discard
		}
		if err = r.read(path, 0); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		l.c.Files = l.c.Files[:n]
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		l.faults.add(Fault{File: path, Msg: "cannot read it: " + cause(err)})
	case name == "gres.conf":
		l.c.GresFile = path
	case name == "cgroup.conf":
		l.c.Cgroup.File = path
	}
	return path
}

// folders returns the directories of the files beside slurm.conf: its own and, if it is a symbolic link, that of its target.
func folders(path string) []string {
	dirs := []string{filepath.Dir(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != dirs[0] {
		dirs = append(dirs, filepath.Dir(real))
	}
	return dirs
}

func (l *loader) fault(at place, help, format string, args ...any) {
	l.faults.add(Fault{File: at.file, Line: at.line, Msg: fmt.Sprintf(format, args...), Help: help})
}

func (l *loader) warn(at place, help, format string, args ...any) {
	l.c.Warnings.add(Fault{File: at.file, Line: at.line, Msg: fmt.Sprintf(format, args...), Help: help})
}

// line reads one line of slurm.conf.
func (l *loader) line(pairs []pair) {
	switch strings.ToLower(pairs[0].key) {
	case "nodename":
		l.nodeLine(pairs)
	case "partitionname":
		l.partitionLine(pairs)
	case "downnodes":
		l.downNodesLine(pairs)
	case "nodeset":
		l.nodeSetLine(pairs)
	default:
		for _, p := range pairs {
			l.scalar(p)
		}
	}
}

// scalar reads one key on a line of its own.
func (l *loader) scalar(p pair) {
	lower := strings.ToLower(p.key)
	k, ok := keys()[lower]
	switch {
	case !ok && removed()[lower] != "":
		l.fault(p.place, removed()[lower], "%s is no longer a key", p.key)
		return
	case !ok:
		l.fault(p.place, didYouMean(p.key, keyNames()), "unknown key %s", p.key)
		return
	case p.value == "":
		l.fault(p.place, "delete the line to use the default", "%s has no value", k.name)
		return
	}
	if first, twice := l.c.setAt[lower]; twice && lower != "slurmctldhost" && l.c.raw[lower] != p.value {
		l.warn(p.place, "delete one of the lines", "%s was already set at %s:%d; this value is used", k.name, first.file, first.line)
	}
	l.c.setAt[lower], l.c.raw[lower] = p.place, p.value
	if k.why != "" {
		l.ignore(k, p)
	}
	if k.set == nil {
		return
	}
	if err := k.set(l.c, p.value); err != nil {
		l.fault(p.place, "", "%s: %s", k.name, err)
	}
}

func (l *loader) ignore(k key, p pair) {
	i := Ignored{Key: k.name, Value: p.value, Why: k.why, File: p.file, Line: p.line}
	if at := slices.IndexFunc(l.c.Ignored, func(o Ignored) bool { return o.Key == k.name }); at >= 0 {
		l.c.Ignored[at] = i
		return
	}
	l.c.Ignored = append(l.c.Ignored, i)
}

// finish derives what is known only at the end of slurm.conf.
func (l *loader) finish() {
	c := l.c
	if name, ok := c.raw["controlmachine"]; ok && len(c.SlurmctldHosts) == 0 {
		h := Host{Name: name, Addr: name}
		if addr, ok := c.raw["controladdr"]; ok {
			h.Addr = addr
		}
		c.SlurmctldHosts = []Host{h}
	}
	if len(c.PropagateLimitsExcept) > 0 {
		c.PropagateResourceLimits = nil // as Slurm shows it
	}
	for _, n := range c.Nodes {
		if n.Port == 0 {
			n.Port = c.SlurmdPort
		}
	}
	c.nodeDefault = l.nodeDefault
	l.setDownNodes()
	l.resolvePartitions()
}

// recordKey is one key of a record such as NodeName; T is the record.
type recordKey[T any] struct {
	name string
	set  func(t *T, value string) error
	why  string // why it has no effect; if set is given, the value is still shown
}

// recordKeys indexes keys by lower-case name on first use: programs that link this package but read no configuration should not pay
// for it.
func recordKeys[T any](keys func() []recordKey[T]) func() map[string]recordKey[T] {
	return sync.OnceValue(func() map[string]recordKey[T] {
		m := map[string]recordKey[T]{}
		for _, k := range keys() {
			m[strings.ToLower(k.name)] = k
		}
		return m
	})
}

// readRecord reads the pairs after the first one into t, in any order.
func readRecord[T any](l *loader, record string, known map[string]recordKey[T], pairs []pair, t *T) {
	for _, p := range pairs {
		k, ok := known[strings.ToLower(p.key)]
		switch {
		case !ok:
			names := make([]string, 0, len(known))
			for _, k := range known {
				names = append(names, k.name)
			}
			slices.Sort(names)
			help := didYouMean(p.key, names)
			if _, global := keys()[strings.ToLower(p.key)]; global && help == "" {
				help = "it belongs on a line of its own"
			}
			l.fault(p.place, help, "unknown key %s on a %s line", p.key, record)
		case k.set == nil:
			l.ignore(key{name: record + " " + k.name, why: k.why}, p)
		default:
			if err := k.set(t, p.value); err != nil {
				l.fault(p.place, "", "%s: %s", k.name, err)
			} else if k.why != "" {
				l.ignore(key{name: record + " " + k.name, why: k.why}, p)
			}
		}
	}
}

// merge combines the pairs of one line with the current defaults, in a fixed order: defaults by name, then the line.
func merge(defaults map[string]pair, pairs []pair) []pair {
	given := map[string]bool{}
	for _, p := range pairs {
		given[strings.ToLower(p.key)] = true
	}
	names := make([]string, 0, len(defaults))
	for name := range defaults {
		if !given[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]pair, 0, len(names)+len(pairs))
	for _, name := range names {
		out = append(out, defaults[name])
	}
	return append(out, pairs...)
}

// keepDefaults adds the pairs of a DEFAULT line to the current defaults.
func keepDefaults(defaults map[string]pair, pairs []pair) {
	for _, p := range pairs {
		defaults[strings.ToLower(p.key)] = p
	}
}
