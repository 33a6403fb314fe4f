// Package container reads image names, mounts and container names in the grammar of Pyxis, NVIDIA's plugin for Slurm, and of
// Enroot, which Pyxis uses to run containers. It also expands the patterns of oci.conf.
package container

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Limits of the options.
const (
	maxImage  = 1024
	maxPath   = 4096
	maxName   = 64
	maxMounts = 128
	maxEnv    = 256
)

// Image returns the name by which Podman pulls an image, "docker://nvcr.io/nvidia/pytorch:24.01-py3", or that of an archive or
// directory on the node, "oci-archive:/data/x.tar".
func Image(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("argument required")
	case len(s) > maxImage:
		return "", fmt.Errorf("the name has %d bytes, the limit is %d", len(s), maxImage)
	}
	for _, r := range s {
		if r <= ' ' || r >= 0x7f {
			return "", errors.New("image names consist of printable ASCII characters, without blanks")
		}
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		if scheme != "docker" {
			return "", fmt.Errorf("%s:// is not supported: images come from a registry (docker://), an archive or a directory "+
				"(oci-archive:, docker-archive:, oci:, dir:)", scheme)
		}
		return registryImage(rest)
	}
	for _, kind := range []string{"oci-archive", "docker-archive", "oci", "dir"} {
		if file, ok := strings.CutPrefix(s, kind+":/"); ok { // "oci:22.04" is an image with a tag
			if file == "" {
				return "", fmt.Errorf("%s: names no file", kind)
			}
			return s, nil
		}
	}
	switch {
	case strings.HasSuffix(s, ".sqsh"), strings.HasSuffix(s, ".squashfs"):
		return "", errors.New("squashfs images of Enroot are not supported: use an image of a registry, or oci-archive:/path of an " +
			"archive that podman save --format oci-archive wrote")
	case s[0] == '/' || s[0] == '.':
		return "", errors.New("give an absolute path, with its format in front: oci-archive:/path, docker-archive:/path, oci:/path, " +
			"dir:/path")
	}
	return registryImage(s)
}

// defaultRegistry serves images whose name has no registry, as in Enroot and Docker.
const defaultRegistry = "docker.io"

// registryImage reads [REGISTRY#]IMAGE[:TAG|@DIGEST] and the form of Docker and Podman, REGISTRY/IMAGE.
func registryImage(s string) (string, error) {
	host, image, has := strings.Cut(s, "#")
	if !has {
		host, image = "", s
		if first, rest, ok := strings.Cut(s, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
			host, image = first, rest
		}
	}
	of := host
	if of == "" {
		of = strings.TrimSuffix(image, digest(image))
	}
	if user, _, ok := strings.Cut(of, "@"); ok {
		return "", fmt.Errorf("a user (%s@) cannot be named here: log in once with podman login --authfile "+
			"~/.config/containers/auth.json", user)
	}
	switch {
	case has && host != "localhost" && !strings.ContainsAny(host, ".:"):
		return "", fmt.Errorf("%q is not a registry: expected a host name, such as nvcr.io#nvidia/pytorch:24.01-py3", host)
	case host == "":
		host = defaultRegistry
	}
	if name := strings.TrimSuffix(image, digest(image)); !wordOf(host, ".-:[]") || !wordOf(name, "._-/:") ||
		strings.HasPrefix(name, "/") || strings.Contains(name, "//") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ":") ||
		strings.HasPrefix(name, ":") {
		return "", errors.New("expected [REGISTRY#]IMAGE[:TAG], such as ubuntu:24.04 or nvcr.io#nvidia/pytorch:24.01-py3")
	}
	if host == defaultRegistry && !strings.Contains(image, "/") {
		image = "library/" + image
	}
	name := "docker://" + host + "/" + image
	if len(name) > maxImage {
		return "", fmt.Errorf("%s: the name has %d bytes, the limit is %d", name, len(name), maxImage)
	}
	return name, nil
}

// digest returns the suffix of the name that pins the content, "@sha256:…".
func digest(image string) string {
	if i := strings.LastIndex(image, "@sha256:"); i > 0 && len(image)-i == len("@sha256:")+64 && wordOf(image[i+8:], "") {
		return image[i:]
	}
	return ""
}

func wordOf(s, also string) bool {
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(also, r) {
			return false
		}
	}
	return s != ""
}

// Mount makes a directory or file of the node visible in a container.
type Mount struct {
	Source string // absolute; "" for a tmpfs
	Target string
	Flags  []string
}

// flags are the flags of Podman's option --volume that restrict the mount; those that change the source are left out.
var flags = []string{"ro", "rw", "bind", "rbind", "private", "rprivate", "shared", "rshared", "slave", "rslave",
	"unbindable", "runbindable", "exec", "noexec", "dev", "nodev", "suid", "nosuid"}

// Mounts reads SRC:DST[:FLAGS][,…], with flags separated by plus signs. A relative source is relative to dir.
func Mounts(s, dir string) (list []Mount, err error) {
	if s == "" {
		return nil, errors.New("argument required")
	}
	for of := range strings.SplitSeq(s, ",") {
		m, err := readMount(of, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of, err)
		}
		list = append(list, m)
	}
	if len(list) > maxMounts {
		return nil, fmt.Errorf("%d mounts, at most %d", len(list), maxMounts)
	}
	return list, nil
}

func readMount(s, dir string) (Mount, error) {
	parts := strings.SplitN(s, ":", 3)
	m := Mount{Source: parts[0], Target: parts[0]}
	if len(parts) > 1 {
		m.Target = parts[1]
	}
	if m.Source == "" || m.Target == "" {
		return m, errors.New("expected SOURCE:TARGET[:FLAGS]")
	}
	switch {
	case m.Source == "tmpfs":
		m.Source = ""
	case m.Source == "umount":
		return m, errors.New("umount is not supported: the default mounts are needed; --no-container-mount-home omits the home directory")
	case m.Source[0] != '/' && m.Source[0] != '.':
		return m, errors.New("the source must be a path that begins with / or ., or tmpfs")
	case m.Source[0] == '.':
		m.Source = path.Join(dir, m.Source)
	default:
		m.Source = path.Clean(m.Source)
	}
	if m.Target[0] != '/' && m.Target[0] != '.' {
		return m, errors.New("the target must be a path that begins with a slash or a dot")
	}
	m.Target = path.Clean("/" + m.Target)
	if m.Target == "/" || m.Target == "/proc" || m.Target == "/dev" || m.Target == "/sys" {
		return m, fmt.Errorf("nothing can be mounted on %s", m.Target)
	}
	if len(m.Source) > maxPath || len(m.Target) > maxPath {
		return m, fmt.Errorf("a path is longer than %d bytes", maxPath)
	}
	if len(parts) < 3 || parts[2] == "" {
		return m, nil
	}
	for flag := range strings.SplitSeq(parts[2], "+") {
		if strings.HasPrefix(flag, "x-create=") {
			continue // targets are always created
		}
		if !slices.Contains(flags, flag) {
			return m, fmt.Errorf("unknown flag %q: expected some of %s, with + between them", flag, strings.Join(flags, ", "))
		}
		m.Flags = append(m.Flags, flag)
	}
	return m, nil
}

func (m Mount) String() string {
	s := m.Source
	if s == "" {
		s = "tmpfs"
	}
	s += ":" + m.Target
	if len(m.Flags) > 0 {
		s += ":" + strings.Join(m.Flags, "+")
	}
	return s
}

// Name checks the name of a container to keep. Pyxis allows a suffix that says how to use an existing container; Sluice always does
// "auto".
func Name(s string) (string, error) {
	name, how, _ := strings.Cut(s, ":")
	switch {
	case name == "":
		return "", errors.New("empty name")
	case how != "" && how != "auto":
		return "", fmt.Errorf("%q is not supported: an existing container is used, a missing one is created (auto)", how)
	case len(name) > maxName:
		return "", fmt.Errorf("the name has %d bytes, the limit is %d", len(name), maxName)
	case !wordOf(name, "._-") || !wordOf(name[:1], ""):
		return "", errors.New("names consist of letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	}
	return name, nil
}

// Env reads a list of variable names.
func Env(s string) ([]string, error) {
	names := strings.Split(s, ",")
	for _, name := range names {
		if !wordOf(name, "_") || name[0] >= '0' && name[0] <= '9' {
			return nil, fmt.Errorf("%q is not a variable name", name)
		}
	}
	if len(names) > maxEnv {
		return nil, fmt.Errorf("%d names, at most %d", len(names), maxEnv)
	}
	return names, nil
}

// Workdir checks the initial directory of the tasks. It is a path in the container, so a relative path starts at the container's
// root.
func Workdir(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("argument required")
	case len(s) > maxPath:
		return "", fmt.Errorf("a path is longer than %d bytes", maxPath)
	}
	return path.Clean("/" + s), nil
}
