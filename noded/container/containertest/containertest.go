// Package containertest provides an image for tests of containers, and a machine on which an OCI runtime works.
package containertest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Missing returns why containers do not work on this machine, as a reason to skip a test.
func Missing() error {
	for _, program := range []string{"podman", "crun", "nsenter", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install --no-install-recommends podman crun uidmap util-linux busybox-static",
				program)
		}
	}
	busybox, _ := exec.LookPath("busybox")
	if out, _ := exec.Command("ldd", busybox).CombinedOutput(); bytes.Contains(out, []byte("=>")) {
		return errors.New("busybox is linked dynamically: apt-get install busybox-static")
	}
	if out, err := exec.Command("unshare", "--user", "--mount", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("this kernel or container gives no user namespaces: %s", bytes.TrimSpace(out))
	}
	if hybrid() && os.Geteuid() != 0 {
		return errors.New("crun refuses a machine with controllers in cgroup v1 and v2 alike, and only root can hide the latter")
	}
	return nil
}

// FirstUID is the first uid of test runs. Each test process has a uid of its own, in no passwd file, so that leftovers of a
// killed run (processes, keyrings, Podman's files) do not disturb another.
const FirstUID = 540_000_000

// UID is the uid of this run.
func UID() uint32 { return FirstUID + uint32(os.Getpid()) }

// Tidy removes leftovers of a killed Podman 4.3, which unpacks image archives below /var/tmp, whatever TMPDIR says: those of this
// run and of runs that have ended.
func Tidy() {
	left, _ := filepath.Glob("/var/tmp/oci*")
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		uid := info.Sys().(*syscall.Stat_t).Uid
		if pid := int(uid) - FirstUID; uid == UID() || pid > 1 && pid <= maxPID && syscall.Kill(pid, 0) == syscall.ESRCH {
			os.RemoveAll(dir)
		}
	}
}

const maxPID = 1 << 22 // the kernel's maximum

const unified = "/sys/fs/cgroup/unified"

// hybrid reports whether cgroup v1 has controllers in a second hierarchy beside it, which crun refuses whether or not it creates
// cgroups.
func hybrid() bool {
	b, err := os.ReadFile(unified + "/cgroup.controllers")
	return err == nil && len(bytes.TrimSpace(b)) > 0
}

// Hide is a shell command that hides that hierarchy in its own mount namespace.
const Hide = "if [ -e " + unified + "/cgroup.controllers ]; then umount " + unified + " || exit 1; fi"

const within = "SLUICE_TEST_CGROUP_V1" // set in that other process

// Inside runs a test where an OCI runtime works, in another process if necessary; false: it ran there, and is done.
func Inside(t *testing.T) bool {
	t.Helper()
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	if !hybrid() {
		return true
	}
	if os.Getenv(within) != "" {
		t.Fatalf("%s is still there", unified)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", Hide+`; exec "$0" "$@"`, os.Args[0],
		"-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), within+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a mount namespace of its own: %v", err)
	}
	return false
}

// Archive writes an OCI image: busybox, in the working directory /work, with the variables.
func Archive(path string, env ...string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	layer := newArchive()
	for _, dir := range []string{"bin/", "etc/", "tmp/", "work/"} {
		layer.add(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}, nil)
	}
	layer.add(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range applets {
		layer.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
	}
	image := newArchive()
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	blob := func(kind string, b []byte) descriptor {
		sum := sha256.Sum256(b)
		name := hex.EncodeToString(sum[:])
		image.add(&tar.Header{Typeflag: tar.TypeReg, Name: "blobs/sha256/" + name, Mode: 0o644}, b)
		return descriptor{"application/vnd.oci.image." + kind, "sha256:" + name, len(b)}
	}
	document := func(v any) []byte {
		b, merr := json.Marshal(v)
		err = errors.Join(err, merr)
		return b
	}
	contents := blob("layer.v1.tar", layer.bytes())
	config := blob("config.v1+json", document(map[string]any{"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Env": append([]string{"PATH=/bin"}, env...), "WorkingDir": "/work"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{contents.Digest}}}))
	manifest := blob("manifest.v1+json", document(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config":    config, "layers": []descriptor{contents}}))
	image.add(&tar.Header{Typeflag: tar.TypeReg, Name: "index.json", Mode: 0o644},
		document(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}}))
	image.add(&tar.Header{Typeflag: tar.TypeReg, Name: "oci-layout", Mode: 0o644}, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return errors.Join(err, layer.err, image.err, os.WriteFile(path, image.bytes(), fs.FileMode(0o644)))
}

// Bundle creates an OCI bundle in an existing directory: busybox, in the working directory /work, with the variables. change may
// alter its configuration.
func Bundle(dir string, change func(config map[string]any), env ...string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	for _, name := range []string{"bin", "proc", "dev", "tmp", "work"} {
		err = errors.Join(err, os.MkdirAll(dir+"/rootfs/"+name, 0o755))
	}
	err = errors.Join(err, os.WriteFile(dir+"/rootfs/bin/busybox", program, 0o755))
	for _, name := range applets {
		err = errors.Join(err, os.Symlink("busybox", dir+"/rootfs/bin/"+name))
	}
	mount := func(at, kind string, options ...string) map[string]any {
		return map[string]any{"destination": at, "type": kind, "source": kind, "options": options}
	}
	config := map[string]any{"ociVersion": "1.0.0",
		"process": map[string]any{"terminal": true, "user": map[string]any{"uid": 0, "gid": 0}, "args": []string{"sh"},
			"env": append([]string{"PATH=/bin"}, env...), "cwd": "/work"},
		"root": map[string]any{"path": "rootfs", "readonly": true},
		"mounts": []any{mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755"), mount("/tmp", "tmpfs", "nosuid"),
			mount("/dev/pts", "devpts", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5")},
		"linux": map[string]any{"namespaces": []any{map[string]any{"type": "mount"}, map[string]any{"type": "pid"}}}}
	if change != nil {
		change(config)
	}
	text, jerr := json.MarshalIndent(config, "", "  ")
	return errors.Join(err, jerr, os.WriteFile(dir+"/config.json", text, 0o644))
}

// applets are the available programs of busybox.
var applets = []string{"cat", "echo", "env", "false", "grep", "head", "id", "kill", "ls", "pwd", "readlink", "sh", "sleep", "touch", "true",
	"tty"}

type archive struct {
	buf bytes.Buffer
	w   *tar.Writer
	err error
}

func newArchive() *archive {
	a := &archive{}
	a.w = tar.NewWriter(&a.buf)
	return a
}

func (a *archive) add(h *tar.Header, b []byte) {
	h.Size = int64(len(b))
	a.err = errors.Join(a.err, a.w.WriteHeader(h))
	_, err := a.w.Write(b)
	a.err = errors.Join(a.err, err)
}

func (a *archive) bytes() []byte {
	a.err = errors.Join(a.err, a.w.Close())
	return a.buf.Bytes()
}
