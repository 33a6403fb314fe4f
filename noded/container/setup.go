package container

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	grammar "github.com/sluice-hpc/sluice/conf/container"
	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// theContainer is Podman's name of the only container in a directory, theNext that of its replacement.
const (
	theContainer = "container"
	theNext      = "next"
)

// setup is a Setup in progress.
type setup struct {
	*Job
	say     io.Writer
	env     []string
	account passwd.Account
	podman  *podman
}

// Setup creates the container so that tasks can enter it. It runs as the user. Progress messages go to say.
func Setup(j *Job, env []string, say io.Writer) error {
	unix.Umask(0o022)
	s := &setup{Job: j, say: say, env: env, account: passwd.Account{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: "/"}}
	if a, ok := passwd.User(strconv.Itoa(os.Getuid())); ok {
		s.account = a
	}
	s.account.GID = uint32(os.Getgid())
	s.env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })
	home := s.account.Home // the place of passwords for registries
	if unix.Access(home, unix.W_OK|unix.X_OK) != nil {
		home = j.User // Podman writes into it
	}
	s.env = append(s.env, "HOME="+home)
	var err error
	if s.podman, err = newPodman(j, j.folder(), s.env); err != nil {
		return err
	}
	lock, err := s.podman.lock(func() { s.tell("waiting for another step that makes the container %s", j.Spec.Name) })
	if err != nil {
		return err
	}
	defer lock.Close()
	holder := process{}
	if _ = readJSON(s.podman.in(holderFile), &holder); !holder.alive() {
		if err := s.podman.begin(); err != nil {
			return err
		}
	}
	if err := s.podman.ask(home); err != nil {
		return err
	}
	s.podman.images = filepath.Join(j.User, images)
	args, err := s.arguments()
	if err != nil {
		return err
	}
	if holder.alive() {
		if shared, err := s.share(holder, args); shared || err != nil {
			return err
		}
		if err := s.podman.begin(); err != nil {
			return err
		}
	}
	if err := s.create(args); err != nil {
		return err
	}
	if _, err := s.podman.run("init", theContainer); err != nil {
		return fmt.Errorf("cannot create the container: %w", err)
	}
	return s.note()
}

// others is how long a step that is about to end may keep a named container from one that needs other mounts or devices.
const others = 15 * time.Second

// share uses a container that another step of the user's holds at the moment; false: that step has ended meanwhile.
func (s *setup) share(holder process, args []string) (bool, error) {
	if s.made(args) {
		return s.pin(holder)
	}
	for deadline := time.Now().Add(others); holder.alive(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false, fmt.Errorf("another step uses the container %s on node %s with other mounts, devices or options", s.Spec.Name,
				s.Node)
		}
	}
	return false, nil
}

// made reports whether the existing container was created with these arguments.
func (s *setup) made(args []string) bool {
	var was []string
	return readJSON(s.podman.in(madeFile), &was) == nil && slices.Equal(was, args)
}

// pin starts a process of this step that holds the namespaces of a container which another step may end. False: it has ended.
func (s *setup) pin(holder process) (bool, error) {
	of := stateOf(holder)
	cmd := exec.Command("/proc/self/exe", "stepd", Arg, pinArg, "-")
	cmd.Env = []string{}
	for path, flags := range map[string]int{of.User: unix.O_RDONLY, of.Mount: unix.O_RDONLY, of.Root: unix.O_PATH} {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, ignore(err, unix.ENOENT, unix.ESRCH, unix.EACCES)
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if !holder.alive() { // the opened files may be another process's
		return false, nil
	}
	slices.SortFunc(cmd.ExtraFiles, func(a, b *os.File) int { return -strings.Compare(a.Name(), b.Name()) }) // root, user, mnt
	if err := cmd.Start(); err != nil {
		return false, err
	}
	start, err := startOf(cmd.Process.Pid)
	if err != nil {
		return false, err
	}
	files := fmt.Sprintf("/proc/%d/fd/", cmd.Process.Pid)
	st := &state{By: process{cmd.Process.Pid, start}, Root: files + "3", User: files + "4", Mount: files + "5"}
	return true, s.enterBy(st)
}

func ignore(err error, some ...error) error {
	if slices.Contains(some, err) {
		return nil
	}
	return err
}

func (s *setup) tell(format string, args ...any) {
	fmt.Fprintf(s.say, "container: "+format+"\n", args...)
}

// create makes sure that the container exists. A named one keeps its contents, and gets the mounts and devices of this step.
func (s *setup) create(args []string) (err error) {
	old := false
	if s.Spec.Name != "" {
		if err := s.settle(); err != nil {
			return fmt.Errorf("cannot settle the container %s: %w", s.Spec.Name, err)
		}
		if old = s.exists(theContainer); old && s.made(args) {
			return nil
		}
	}
	image, name := "", theContainer
	if old {
		a, err := s.about()
		if err != nil {
			return err
		}
		image, name = a.Image, theNext
	} else if image, err = s.pull(); err != nil {
		return err
	}
	if _, err := s.podman.run(append(append([]string{"create", "--name=" + name}, args...), image)...); err != nil {
		return fmt.Errorf("cannot create the container: %w", err)
	}
	if old {
		if err := s.replace(); err != nil {
			return fmt.Errorf("cannot recreate the container %s: %w", s.Spec.Name, err)
		}
	}
	return writeJSON(s.podman.in(madeFile), args)
}

// replace moves the contents of the present container, and its name, to the next one. Podman cannot change the mounts of a
// container.
func (s *setup) replace() error {
	from, err := s.layer(theContainer)
	if err != nil {
		return err
	}
	to, err := s.layer(theNext)
	if err != nil {
		return err
	}
	if _, err := s.podman.run("unshare", "rm", "-rf", to); err != nil {
		return err
	}
	if _, err := s.podman.run("unshare", "mv", "-T", from, to); err != nil {
		return err
	}
	return s.settle()
}

// settle completes or drops an interrupted replacement: the present container has no contents once the next one has them.
func (s *setup) settle() error {
	if !s.exists(theNext) {
		return nil
	}
	if s.exists(theContainer) {
		dir, err := s.layer(theContainer)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(dir); err == nil {
			_, err = s.podman.run("rm", "--force", "--time=0", theNext)
			return err
		}
		if _, err := s.podman.run("rm", "--force", "--time=0", theContainer); err != nil {
			return err
		}
	}
	_, err := s.podman.run("rename", theNext, theContainer)
	return err
}

// layer returns the directory of the files written in a container.
func (s *setup) layer(name string) (string, error) {
	dir, err := s.podman.run("container", "inspect", `--format={{or (index .GraphDriver.Data "UpperDir") (index .GraphDriver.Data "dir")}}`,
		name)
	if err == nil && !strings.HasPrefix(dir, s.folder()+"/") {
		err = fmt.Errorf("podman does not report the directory of its files (%q)", dir)
	}
	return dir, err
}

// exists reports whether this container exists.
func (s *setup) exists(name string) bool {
	_, err := s.podman.run("container", "exists", name)
	return err == nil
}

// pull makes sure that the image is in the user's image directory, and returns Podman's id of it.
func (s *setup) pull() (string, error) {
	if s.Spec.Image == "" {
		return "", fmt.Errorf("there is no container %s on node %s; --container-image creates it", s.Spec.Name, s.Node)
	}
	from, err := grammar.Image(s.Spec.Image)
	if err != nil {
		return "", fmt.Errorf("--container-image=%s: %w", s.Spec.Image, err)
	}
	p, err := newPodman(s.Job, filepath.Join(s.User, images), s.env)
	if err != nil {
		return "", err
	}
	p.store = s.podman.store
	lock, err := p.lock(func() { s.tell("waiting for another step that pulls an image to node %s", s.Node) })
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := p.begin(); err != nil {
		return "", err
	}
	defer p.endPause()
	name, ofRegistry := strings.CutPrefix(from, "docker://")
	if ofRegistry {
		if s.learn(p, name) == nil { // it is here
			return name, nil
		}
		s.tell("pulling %s to node %s", name, s.Node)
	}
	id, err := s.pullFrom(p, from)
	if err == nil {
		err = s.learn(p, id)
	}
	if err != nil {
		return "", fmt.Errorf("cannot pull the image %s: %w", s.Spec.Image, err)
	}
	return id, nil
}

// pullFrom shows Podman's progress, and keeps its last messages for the error.
func (s *setup) pullFrom(p *podman, from string) (id string, err error) {
	defer func() { err = errors.Join(err, removeAll(filepath.Join(p.in(blobs), near))) }()
	if from, err = p.near(from); err != nil {
		return "", err
	}
	args := []string{"pull", from}
	if !strings.HasPrefix(from, "docker://") {
		args = append(args, "--quiet") // a read from the node's own disk needs no progress
	}
	cmd := p.command(args...)
	cmd.Dir = p.in(blobs)
	out, err := os.CreateTemp(cmd.Dir, "pull-")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = out, w
	if err := cmd.Start(); err != nil {
		return "", errors.Join(err, r.Close(), w.Close())
	}
	w.Close()
	said := &lastWords{to: s.say}
	copied := make(chan struct{})
	go func() { defer close(copied); _, _ = io.Copy(said, r) }()
	err = cmd.Wait()
	p.endPause() // which holds the pipe as well
	<-copied
	r.Close()
	if err != nil {
		return "", sayWhy(err, said.text())
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		return "", err
	}
	lines := strings.Fields(string(b))
	if len(lines) == 0 {
		return "", errors.New("podman does not report its id")
	}
	return strings.TrimPrefix(lines[len(lines)-1], "sha256:"), nil
}

const near = "image"

// near provides an image in a directory or an OCI archive under a name that Podman accepts, and returns that name for a Podman
// that runs in the directory of blobs. Podman makes a name from the path of a directory and refuses it for its capitals. It would
// unpack an archive twice, one time into /var/tmp whatever TMPDIR says, where it would stay if the step is killed.
func (p *podman) near(from string) (string, error) {
	kind, path, _ := strings.Cut(from, ":")
	tag := ""
	if strings.HasPrefix(kind, "oci") {
		if path, tag, _ = strings.Cut(path, ":"); tag != "" {
			tag = ":" + tag
		}
	}
	dir := filepath.Join(p.in(blobs), near)
	switch kind {
	case "oci", "dir":
		return kind + ":" + near + tag, os.Symlink(path, dir)
	case "oci-archive":
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		cmd := exec.Command(program("tar"), "--extract", "--file", path, "--directory", dir)
		cmd.Env = p.env
		_, err := output(cmd)
		return "oci:" + near + tag, err
	}
	return from, nil
}

// lastWords passes lines on, and keeps those that Podman marks as errors.
type lastWords struct {
	to    io.Writer
	line  []byte
	wrong []string
}

func (l *lastWords) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' && len(l.line) < 4096 {
			l.line = append(l.line, c)
			continue
		}
		if text := string(l.line); strings.HasPrefix(text, "Error: ") {
			l.wrong = append(l.wrong, text)
		} else if text != "" {
			_, _ = io.WriteString(l.to, text+"\n")
		}
		l.line = l.line[:0]
	}
	return len(b), nil
}

func (l *lastWords) text() string { return strings.Join(l.wrong, "\n") }

// hold is a program that can be executed in any container and never is: the runtime looks for it, and waits for the order to
// start it.
const hold = "/run/sluice/hold"

// arguments returns the arguments of "podman create", except the image.
func (s *setup) arguments() ([]string, error) {
	uid, gid := strconv.Itoa(int(s.account.UID)), strconv.Itoa(int(s.account.GID))
	args := []string{"--quiet", "--pull=never", "--cgroups=disabled", "--network=host",
		"--log-driver=none", "--security-opt=unmask=ALL", "--security-opt=label=disable", "--entrypoint=" + hold, "--workdir=/",
		"--http-proxy=false", "--pidfile=" + s.podman.in(pidFile)}
	switch {
	case s.Spec.RemapRoot:
		args = append(args, "--user=0:0")
	case s.podman.store.subordinate:
		args = append(args, "--userns=keep-id", "--user="+uid+":"+gid)
	default:
		args = append(args, "--uidmap="+uid+":0:1", "--gidmap="+gid+":0:1", "--user="+uid+":"+gid)
	}
	if s.account.Name != "" && !s.Spec.RemapRoot {
		args = append(args, fmt.Sprintf("--passwd-entry=%s:*:%s:%s::%s:%s", s.account.Name, uid, gid, s.account.Home,
			cmp.Or(s.account.Shell, "/bin/sh")))
	}
	if s.Spec.ReadOnly {
		args = append(args, "--read-only", "--read-only-tmpfs=false")
	}
	mounts, err := s.mounts()
	if err != nil {
		return nil, err
	}
	args = append(args, mounts...)
	devices, note := devices(s.Devices, cdi())
	if note != "" {
		s.tell("%s", note)
	}
	return append(args, devices...), nil
}

func (s *setup) mounts() (args []string, err error) {
	volume := func(source, target string, flags ...string) {
		if len(flags) > 0 {
			target += ":" + strings.Join(flags, ",")
		}
		args = append(args, "--volume="+source+":"+target)
	}
	volume("/bin/true", hold, "ro")
	for _, dir := range []string{"/proc", "/dev/pts", "/dev/shm", "/dev/infiniband"} {
		if _, err := os.Stat(dir); err == nil {
			volume(dir, dir)
		}
	}
	if s.Script != "" {
		volume(s.Script, s.Script, "ro")
	}
	home := filepath.Clean(s.account.Home)
	own := home != "/" && filepath.IsAbs(home)
	for _, text := range s.Spec.Mounts {
		list, err := grammar.Mounts(text, "/")
		if err != nil {
			return nil, fmt.Errorf("--container-mounts=%s: %w", text, err)
		}
		for _, m := range list {
			if m.Source == "" {
				args = append(args, "--tmpfs="+m.Target+":mode=1777")
				continue
			}
			if _, err := os.Stat(m.Source); err != nil {
				return nil, fmt.Errorf("--container-mounts=%s: %w", text, err)
			}
			volume(m.Source, m.Target, m.Flags...)
			if home == m.Target || strings.HasPrefix(home, m.Target+"/") {
				own = false
			}
		}
	}
	switch _, err := os.Stat(home); {
	case s.Spec.MountHome && err != nil:
		return nil, fmt.Errorf("--container-mount-home: %w", err)
	case s.Spec.MountHome:
		volume(home, home)
	case own: // an empty one, in which programs keep files
		dir := s.podman.in("home")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		volume(dir, home)
	}
	return args, nil
}

// about is an image's description of its programs.
type about struct {
	Image      string // Podman's id of it
	Env        []string
	WorkingDir string
}

func (s *setup) about() (a about, err error) {
	err = readJSON(s.podman.in(aboutFile), &a)
	return a, err
}

// learn stores the image's description.
func (s *setup) learn(p *podman, image string) error {
	out, err := p.run("image", "inspect", "--format={{json .Config}}", image)
	if err != nil {
		return err
	}
	var a about
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		return fmt.Errorf("cannot read the description of the image %s: %w", image, err)
	}
	a.Image = image
	return writeJSON(s.podman.in(aboutFile), a)
}

// note stores which process holds the container, and how to enter it.
func (s *setup) note() error {
	b, err := os.ReadFile(s.podman.in(pidFile))
	if err != nil {
		return err
	}
	var p process
	if p.PID, err = strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
		p.Start, err = startOf(p.PID)
	}
	if err != nil {
		return fmt.Errorf("the container has ended already: %w", err)
	}
	if err := writeJSON(s.podman.in(holderFile), p); err != nil {
		return err
	}
	return s.enterBy(stateOf(p))
}

// enterBy stores the state for the tasks.
func (s *setup) enterBy(st *state) error {
	a, err := s.about()
	if err != nil {
		return err
	}
	st.Env, st.Dir = a.Env, a.WorkingDir
	return writeJSON(s.statePath(), st)
}

// controls are other files that holders of any GPU open.
var controls = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

func presentControls() (files []string) {
	for _, f := range controls {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		}
	}
	return files
}

// deviceFiles returns all files of the step's devices, and other files that holders of GPUs open.
func deviceFiles(list []*pb.ContainerDevice) (files []string) {
	gpus := false
	for _, d := range list {
		gpus = gpus || strings.HasPrefix(d.Id, "GPU-") || strings.HasPrefix(d.Id, "MIG-")
		for _, f := range d.Files {
			if strings.HasPrefix(f, "/dev/") && !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	if gpus {
		files = append(files, presentControls()...)
	}
	return files
}

// devices returns the arguments for the step's devices: CDI names if a specification of the node has them, else the files alone.
func devices(list []*pb.ContainerDevice, specs string) (args []string, note string) {
	plain := false
	for _, d := range list {
		gpu := strings.HasPrefix(d.Id, "GPU-") || strings.HasPrefix(d.Id, "MIG-")
		if name := cdiName(d, specs); gpu && name != "" {
			args = append(args, "--device="+name)
			continue
		}
		for _, f := range d.Files {
			if strings.HasPrefix(f, "/dev/") {
				args = append(args, "--device="+f)
			}
		}
		plain = plain || gpu
	}
	if !plain {
		return args, ""
	}
	for _, f := range presentControls() {
		args = append(args, "--device="+f)
	}
	return args, "this node has no CDI specification of its GPUs (nvidia-ctk cdi generate): the container gets their device files, and the " +
		"image must have the libraries of the driver"
}

// cdi returns the text of the node's CDI specifications.
func cdi() string {
	var all strings.Builder
	for _, dir := range []string{"/etc/cdi", "/var/run/cdi"} {
		files, _ := filepath.Glob(dir + "/*")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "nvidia.com/gpu") {
				all.Write(b)
				all.WriteByte('\n')
			}
		}
	}
	return all.String()
}

// cdiName returns the name of a device in a CDI specification (YAML or JSON): the UUID, or the index.
func cdiName(d *pb.ContainerDevice, specs string) string {
	names := []string{d.Id}
	if strings.HasPrefix(d.Id, "GPU-") {
		names = append(names, strconv.Itoa(int(d.Index)))
	}
	for _, name := range names {
		for line := range strings.Lines(specs) {
			key, value, ok := strings.Cut(strings.Trim(line, " \t\r\n-,{}"), ":")
			if ok && strings.Trim(key, `"' `) == "name" && strings.Trim(value, `"' `) == name {
				return "nvidia.com/gpu=" + name
			}
		}
	}
	return ""
}
