// Package policy decides what may be done on a node, whoever orders it. noded-root consults it before it acts, so a compromised
// controller or noded-link gains no more than the policy allows.
//
// The policy is a file on the node, node.conf beside its certificate, which only root can change. Without the file the defaults
// below apply. docs/administrators.md describes it for administrators.
package policy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/trusted"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Refusals returns what the controller needs to know of the policy, so that a job that no node would run is refused at
// submission.
func (p *Policy) Refusals() *pb.Refusals {
	if !p.Strict {
		return nil
	}
	return &pb.Refusals{Root: !p.RootJobs, Below: p.MinUID}
}

// File is the name of the policy's file.
const File = "node.conf"

// Policy is what is allowed. The zero Policy allows everything: it is for daemons that do not run as root, and for tests.
type Policy struct {
	Strict bool // the other fields apply
	// RootJobs allows root's jobs.
	RootJobs bool
	// MinUID is the lowest uid of a job's user, and the lowest gid of a group that a job may have without its user being a member
	// (passwd.System).
	MinUID uint32
	// NeedAccount requires that the user is known on this node.
	NeedAccount bool
	// Owners are the uids, besides root's, whose files may be run as root.
	Owners []uint32
	// Fetched is the directory of programs that came from the controller; empty: none. NoFetched forbids to run them.
	Fetched   string
	NoFetched bool
	// Folders are the directories that programs must be in, unless they were fetched; empty: any.
	Folders []string
	// Spool is the node's spool. Its files are root's, but users supply contents, so nothing in it counts as a program.
	Spool string
	// Own holds the values of this node's own slurm.conf and cgroup.conf.
	Own Own
}

// Own holds settings that the node's own files decide, not the controller.
type Own struct {
	RebootProgram    string
	ConstrainDevices bool
	// JobMapDir and StatDir are the directories of SlurmdParameters for GPU metric exporters.
	JobMapDir, StatDir string
}

// Default is the policy of a node without node.conf.
func Default() Policy { return Policy{Strict: true, MinUID: 1000, NeedAccount: true} }

// Load reads node.conf in a directory. It refuses a file that anybody but root could have changed.
func Load(dir string) (Policy, error) {
	path, err := filepath.Abs(filepath.Join(dir, File))
	if err != nil {
		return Policy{}, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Policy{}, fmt.Errorf("cannot read the policy of this node: %w", err)
	}
	defer f.Close()
	if _, err := trusted.Path(path); err != nil {
		return Policy{}, fmt.Errorf("cannot use the policy of this node: %w", err)
	}
	p := Default()
	var errs []error
	fetched := ""
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if key, value, _ := strings.Cut(line, "="); strings.EqualFold(strings.TrimSpace(key), "FetchedPrograms") {
			fetched = strings.TrimSpace(value)
			continue
		}
		if err := p.set(line); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, n, err))
		}
	}
	// ProgramFolders alone means the host's own programs, so it implies FetchedPrograms=no.
	may := len(p.Folders) == 0
	if fetched != "" {
		if err := yesNo(fetched, &may); err != nil {
			errs = append(errs, fmt.Errorf("%s: FetchedPrograms: %w", path, err))
		}
	}
	p.NoFetched = !may
	return p, errors.Join(append(errs, lines.Err())...)
}

func (p *Policy) set(line string) error {
	key, value, found := strings.Cut(line, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !found {
		return fmt.Errorf("%q is not KEY=VALUE", line)
	}
	switch strings.ToLower(key) {
	case "allowrootjobs":
		return yesNo(value, &p.RootJobs)
	case "requireaccount":
		return yesNo(value, &p.NeedAccount)
	case "minimumuid":
		n, err := strconv.ParseUint(value, 10, 32)
		p.MinUID = uint32(n)
		if err != nil {
			return fmt.Errorf("%s is not a number: MinimumUID=%s", value, value)
		}
	case "trustedowners":
		for _, name := range list(value) {
			uid, ok := passwd.UID(name)
			if !ok {
				return fmt.Errorf("TrustedOwners: there is no user %s", name)
			}
			p.Owners = append(p.Owners, uid)
		}
	case "programfolders":
		for _, dir := range list(value) {
			if !filepath.IsAbs(dir) {
				return fmt.Errorf("ProgramFolders: %s is not an absolute path", dir)
			}
			p.Folders = append(p.Folders, filepath.Clean(dir))
		}
	default:
		return fmt.Errorf("unknown key %s; there are AllowRootJobs, MinimumUID, RequireAccount, TrustedOwners, ProgramFolders and "+
			"FetchedPrograms", key)
	}
	return nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func yesNo(s string, to *bool) error {
	switch strings.ToLower(s) {
	case "yes":
		*to = true
	case "no":
		*to = false
	default:
		return fmt.Errorf("%q is neither yes nor no", s)
	}
	return nil
}

// Judge answers for one policy. Its methods may be called from any goroutine.
type Judge struct {
	Policy
	mu     sync.Mutex
	known  map[uint32]account
	absent passwd.Absent
	asked  uint32 // a uid that the name service failed to answer for; 0: it answers
}

// SetOwn updates the values of the node's own files.
func (j *Judge) SetOwn(o Own) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Policy.Own = o
}

// own returns the last values of the node's own files.
func (j *Judge) own() Own {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Policy.Own
}

// ClosesDevices reports whether the node's own cgroup.conf has ConstrainDevices=yes.
func (j *Judge) ClosesDevices() bool { return j.Strict && j.own().ConstrainDevices }

// account is the cached answer about a user.
type account struct {
	groups []uint32
	at     time.Time
}

// rememberFor is how long an account is cached: otherwise each job of a user in a directory service would cost a getent(1).
const (
	rememberFor = time.Minute
	maxKnown    = 4096
)

// noID is -1, which means "unchanged" to the kernel's calls.
const noID = ^uint32(0)

// User checks whether a job may run as this user with these groups.
func (j *Judge) User(uid, gid uint32, groups []uint32) error {
	if uid == noID || gid == noID || slices.Contains(groups, noID) {
		return fmt.Errorf("uid %d with group %d is no user: %d stands for none", uid, gid, noID)
	}
	if !j.Strict {
		return nil
	}
	if uid == 0 {
		if !j.RootJobs {
			return errors.New("jobs of root are not run on this node; AllowRootJobs=yes in its node.conf allows them")
		}
		return nil
	}
	if passwd.System(uid, j.MinUID) {
		return fmt.Errorf("jobs of uid %d are not run on this node: it is one of the system (MinimumUID=%d in its node.conf)", uid, j.MinUID)
	}
	if j.NeedAccount {
		if _, ok, err := j.lookUp(uid); err != nil {
			return fmt.Errorf("%w: %w", ErrLater, err)
		} else if !ok {
			if !j.absent.Missing(uid) {
				return fmt.Errorf("%w: uid %d has an account on this node, which its name service does not find", ErrLater, uid)
			}
			return fmt.Errorf("uid %d has no account on this node", uid)
		}
	}
	for _, g := range append([]uint32{gid}, groups...) {
		if !passwd.System(g, j.MinUID) && g != 0 {
			continue
		}
		own, _, err := j.lookUp(uid)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLater, err)
		}
		if !slices.Contains(own, g) {
			return fmt.Errorf("uid %d is not in group %d on this node, which is one of the system (MinimumUID=%d)", uid, g, j.MinUID)
		}
	}
	return nil
}

// ErrLater marks refusals whose only reason is that the name service does not answer.
var ErrLater = errors.New("it is not known whether this node allows it")

// lookUp returns a user's groups, and whether the user exists here. An unknown user is looked up again the next time.
func (j *Judge) lookUp(uid uint32) (groups []uint32, known bool, err error) {
	j.mu.Lock()
	a, ok := j.known[uid]
	j.mu.Unlock()
	if ok && time.Since(a.at) < rememberFor {
		return a.groups, true, nil
	}
	u, ok, err := passwd.Find(strconv.FormatUint(uint64(uid), 10))
	if err == nil && ok && u.UID == uid {
		groups, err = passwd.AllGroups(context.Background(), u)
	}
	j.answered(uid, err)
	if err != nil || !ok || u.UID != uid {
		return nil, false, err
	}
	j.absent.Found(uid)
	a = account{groups: groups, at: time.Now()}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.known == nil || len(j.known) >= maxKnown {
		j.known = map[uint32]account{}
	}
	j.known[uid] = a
	return a.groups, true, nil
}

// answered notes whether the name service answered for a user.
func (j *Judge) answered(uid uint32, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil:
		j.asked = 0
	case j.asked == 0:
		j.asked = uid
	}
}

// Fault returns why no job can be checked now: the name service did not answer and still does not. "" is no fault.
func (j *Judge) Fault() string {
	j.mu.Lock()
	uid := j.asked
	j.mu.Unlock()
	if uid == 0 {
		return ""
	}
	if _, _, err := j.lookUp(uid); err != nil {
		return "the name service does not answer (getent passwd)"
	}
	return ""
}

// Program checks whether a program may run for the administrator: only root and TrustedOwners could have changed it.
func (j *Judge) Program(path string) error {
	if !j.Strict {
		return nil
	}
	real, err := trusted.Path(path, j.Owners...)
	if err != nil {
		return fmt.Errorf("this node does not run it: %w", err)
	}
	if j.Fetched != "" && below(real, j.Fetched) {
		if j.NoFetched {
			return fmt.Errorf("this node does not run it: %s came from the controller (FetchedPrograms in its node.conf)", real)
		}
		return nil
	}
	if j.Spool != "" && below(real, j.Spool) || below(real, "/proc") || below(real, "/sys") || below(real, "/dev") {
		return fmt.Errorf("this node does not run it: %s holds no programs", filepath.Dir(real))
	}
	if len(j.Folders) > 0 && !slices.ContainsFunc(j.Folders, func(dir string) bool { return below(real, dir) }) {
		return fmt.Errorf("this node does not run it: %s is in none of the directories %s (ProgramFolders in its node.conf)", real,
			strings.Join(j.Folders, ", "))
	}
	return nil
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Reboot checks whether a command may run to reboot. Only the node's own slurm.conf may set arguments.
func (j *Judge) Reboot(words []string) error {
	if !j.Strict {
		return nil
	}
	if own := j.own().RebootProgram; len(words) > 1 && !slices.Equal(words, strings.Fields(own)) {
		return fmt.Errorf("this node does not run %q: with arguments it runs only the RebootProgram of its own slurm.conf, %q",
			strings.Join(words, " "), own)
	}
	return j.Program(words[0])
}

// Dir checks whether the files for GPU metric exporters may be written to a directory other than the usual ones.
func (j *Judge) Dir(path string) error {
	if own := j.own(); !j.Strict || path == own.JobMapDir || path == own.StatDir {
		return nil
	}
	return fmt.Errorf("%s is not named in this node's own slurm.conf (SlurmdParameters)", path)
}

// plainNames are the variables that programs get besides SLURM_* and SLUICE_*: they tell which devices the job has.
var plainNames = []string{"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}

// Env returns the environment of a program: the job's description and fixed, the node's own variables. A variable that would
// change how programs work, such as LD_PRELOAD or BASH_ENV, is refused.
func (j *Judge) Env(env, fixed []string) ([]string, error) {
	if !j.Strict {
		return env, nil
	}
	out := slices.Clone(fixed)
	for _, kv := range env {
		name, _, found := strings.Cut(kv, "=")
		switch {
		case !found || strings.ContainsRune(kv, 0):
			return nil, fmt.Errorf("%.40q is not an environment variable", kv)
		case slices.ContainsFunc(fixed, func(f string) bool { return strings.HasPrefix(f, name+"=") }):
		case name == "PATH" || name == "SLURM_CONF" || name == "SLUICE_SOCKET": // dropped where the node has none
		case strings.HasPrefix(name, "SLURM_"), strings.HasPrefix(name, "SLURMD_"), strings.HasPrefix(name, "SLUICE_"),
			slices.Contains(plainNames, name):
			out = append(out, kv)
		default:
			return nil, fmt.Errorf("a program of the administrator does not get the variable %.40q", name)
		}
	}
	return out, nil
}

// Hold restricts a bundle to what the node allows. hard returns this daemon's own hard limit of a resource.
func (j *Judge) Hold(b *pb.Bundle, hard func(int) uint64) error {
	for _, path := range append(slices.Clone(b.TaskProlog), b.TaskEpilog) {
		if path == "" {
			continue
		}
		if err := j.Program(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a missing program is not run
			return fmt.Errorf("TaskProlog or TaskEpilog %s: %w", path, err)
		}
	}
	for _, r := range b.Rlimits {
		most := hard(int(r.Resource))
		r.Hard, r.Soft = min(r.Hard, most), min(r.Soft, most)
	}
	return nil
}
