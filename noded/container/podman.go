package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// programs is the search path for Podman: the node's own, not one of the user's.
const programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// podman runs Podman with storage and state in one directory.
type podman struct {
	path   string
	folder string
	state  string // directory
	images string // another image directory that it reads; empty: none
	store  *store
	env    []string
}

// store is the node's kind of storage, from its storage.conf.
type store struct {
	driver      string
	options     []string
	subordinate bool // the user has subordinate ids
}

// program returns the path of a program, whatever the job's PATH is; empty: none.
func program(name string) string {
	for dir := range strings.SplitSeq(programs, ":") {
		if path := dir + "/" + name; unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}

func newPodman(j *Job, folder string, env []string) (*podman, error) {
	p := &podman{path: program("podman"), folder: folder, state: filepath.Join(j.Run, short(folder))}
	if p.path == "" {
		return nil, errors.New("podman is not installed here: containers need the packages podman, crun and uidmap")
	}
	p.env = []string{"PATH=" + programs, "XDG_RUNTIME_DIR=" + p.state, "LC_ALL=C.UTF-8"}
	for _, kv := range env {
		switch name, _, _ := strings.Cut(kv, "="); strings.ToUpper(name) {
		case "HOME", "USER", "REGISTRY_AUTH_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			p.env = append(p.env, kv)
		}
	}
	if err := os.MkdirAll(p.in(blobs), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create a directory for containers: %w", err)
	}
	p.env = append(p.env, "TMPDIR="+p.in(blobs), "CONTAINERS_CONF="+p.in("containers.conf"))
	if err := os.WriteFile(p.in("containers.conf"), withFileLocks(siteConf(env)), 0o600); err != nil {
		return nil, err
	}
	return p, nil
}

// siteConf returns the containers.conf of the user or the node.
func siteConf(env []string) []byte {
	paths := []string{"/etc/containers/containers.conf", "/usr/share/containers/containers.conf"}
	for _, kv := range env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok {
			paths = append([]string{home + "/.config/containers/containers.conf"}, paths...)
		}
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			return b
		}
	}
	return nil
}

// withFileLocks makes Podman keep its locks in its directory: in /dev/shm they would stay, and all Podmans of a user would share
// them.
func withFileLocks(conf []byte) []byte {
	const locks = "lock_type = \"file\"\n"
	var out bytes.Buffer
	engine := false
	for line := range bytes.Lines(conf) {
		text := bytes.TrimSpace(line)
		if name, _, ok := bytes.Cut(text, []byte("=")); ok && string(bytes.TrimSpace(name)) == "lock_type" {
			continue
		}
		out.Write(line)
		if string(text) == "[engine]" {
			if !bytes.HasSuffix(line, []byte("\n")) {
				out.WriteByte('\n')
			}
			out.WriteString(locks)
			engine = true
		}
	}
	if !engine {
		out.WriteString("\n[engine]\n" + locks)
	}
	return out.Bytes()
}

// command returns a call of Podman.
func (p *podman) command(args ...string) *exec.Cmd {
	all := []string{"--log-level=fatal", "--cgroup-manager=cgroupfs", "--events-backend=none", "--root=" + p.in("storage"),
		"--runroot=" + filepath.Join(p.state, "run"), "--tmpdir=" + filepath.Join(p.state, "tmp")}
	if p.store != nil {
		all = append(all, "--storage-driver="+p.store.driver)
		for _, o := range p.store.options {
			all = append(all, "--storage-opt="+o)
		}
		if p.images != "" {
			all = append(all, "--storage-opt="+p.store.driver+".imagestore="+filepath.Join(p.images, "storage"))
		}
	}
	cmd := exec.Command(p.path, append(all, args...)...)
	cmd.Env, cmd.Dir = p.env, "/"
	return cmd
}

func (p *podman) in(name string) string { return filepath.Join(p.folder, name) }

// run returns its output; the error contains its error messages.
func (p *podman) run(args ...string) (string, error) { return output(p.command(args...)) }

func output(cmd *exec.Cmd) (string, error) {
	var out, bad bytes.Buffer
	err := runToEnd(cmd, &out, &bad)
	if err != nil {
		return "", sayWhy(err, bad.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// runToEnd waits for the process alone. Its leftover children may hold its output for as long as the container lives, so the
// output is not a pipe.
func runToEnd(cmd *exec.Cmd, out, bad *bytes.Buffer) error {
	files := map[*bytes.Buffer]*os.File{}
	for _, b := range []*bytes.Buffer{out, bad} {
		fd, err := unix.MemfdCreate("podman", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		files[b] = os.NewFile(uintptr(fd), "podman")
		defer files[b].Close()
	}
	cmd.Stdout, cmd.Stderr = files[out], files[bad]
	err := cmd.Run()
	for b, f := range files {
		if _, serr := f.Seek(0, 0); serr == nil {
			_, _ = b.ReadFrom(f)
		}
	}
	return err
}

// sayWhy builds an error from Podman's messages.
func sayWhy(err error, said string) error {
	var why []string
	for line := range strings.Lines(said) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "Error: "); line != "" && !strings.HasPrefix(line, "time=") {
			why = append(why, line)
		}
	}
	if len(why) == 0 {
		return err
	}
	return errors.New(strings.Join(why, "; "))
}

// ask detects the kind of storage. Without a storage.conf it is overlay mounts, if supported.
func (p *podman) ask(home string) error {
	tries := []string{"overlay", "vfs"}
	for _, path := range []string{"/etc/containers/storage.conf", "/usr/share/containers/storage.conf",
		filepath.Join(home, ".config/containers/storage.conf")} {
		if _, err := os.Stat(path); err == nil {
			tries = []string{""}
			break
		}
	}
	var first error
	for _, driver := range tries {
		var args []string
		if driver != "" {
			args = []string{"--storage-driver=" + driver}
		}
		out, err := p.run(append(args, "info", "--format=json")...)
		if err == nil {
			p.store, err = readInfo([]byte(out))
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return fmt.Errorf("podman info: %w", first)
}

// readInfo parses "podman info".
func readInfo(b []byte) (*store, error) {
	var info struct {
		Host struct {
			IDMappings struct {
				UIDMap []any `json:"uidmap"`
			} `json:"idMappings"`
		} `json:"host"`
		Store struct {
			Driver  string         `json:"graphDriverName"`
			Options map[string]any `json:"graphOptions"`
		} `json:"store"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return nil, err
	}
	s := &store{driver: info.Store.Driver, subordinate: len(info.Host.IDMappings.UIDMap) > 1}
	for name, value := range info.Store.Options {
		if of, ok := value.(map[string]any); ok {
			value = of["Executable"] // for overlay.mount_program
		}
		if text, ok := value.(string); ok && !strings.HasSuffix(name, ".imagestore") {
			s.options = append(s.options, name+"="+text)
		}
	}
	if !s.subordinate { // all files of the image are given to one user
		s.options = append(s.options, s.driver+".ignore_chown_errors=true")
	}
	return s, nil
}

// begin removes the state of an earlier boot or step.
func (p *podman) begin() error {
	for _, dir := range []string{p.state, p.in(blobs)} {
		if err := removeAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// removeAll also removes the contents of directories without write permission for their owner, which archives can have.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_, err := output(exec.Command(program("chmod"), "--recursive", "u+rwx", dir))
	if rerr := os.RemoveAll(dir); rerr != nil {
		return errors.Join(err, rerr)
	}
	return nil
}

// lock is held by one process at a time. waiting is called if another one holds it.
func (p *podman) lock(waiting func()) (*os.File, error) {
	f, err := os.OpenFile(p.in("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		waiting()
		err = unix.EINTR
		for err == unix.EINTR {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// endPause ends the process that Podman has left to hold its namespaces: the next call, from another step, starts its own.
func (p *podman) endPause() {
	path := filepath.Join(p.state, "tmp/pause.pid")
	b, err := os.ReadFile(path)
	if err != nil {
		return
	}
	_ = os.Remove(path)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return
	}
	// The pid may have been reused: only a process in another user namespace is Podman's.
	own, _ := os.Readlink("/proc/self/ns/user")
	if of, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user"); err == nil && of != own && sameCgroup(pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// sameCgroup reports whether a process belongs to this step.
func sameCgroup(pid int) bool {
	own, err := os.ReadFile("/proc/self/cgroup")
	of, ferr := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && ferr == nil && bytes.Equal(own, of)
}
