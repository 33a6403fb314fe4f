package container

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// scriptAt is the path of the batch script in a bundle's container, as in Slurm.
const scriptAt = "/tmp/slurm/startup"

// maxConfig bounds config.json.
const maxConfig = 16 << 20

// object is a part of config.json.
type object = map[string]any

// config is config.json of a bundle (OCI runtime specification). Parts that are not adapted stay unchanged, known or not.
type config struct {
	object
}

// readConfig reads a bundle's config.json.
func readConfig(bundle string) (*config, error) {
	path := filepath.Join(bundle, "config.json")
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("--container=%s: %w", bundle, err)
	}
	defer f.Close()
	bad := func(format string, args ...any) error { return fmt.Errorf(path+": "+format, args...) }
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, bad("it is no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfig {
		return nil, bad("it is longer than %d bytes", maxConfig)
	}
	c := &config{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&c.object); err != nil {
		return nil, bad("it is no configuration of an OCI bundle: %v", err)
	}
	if d.More() {
		return nil, bad("something follows the configuration of the OCI bundle")
	}
	for _, name := range []string{"process", "root", "linux", "hooks"} {
		if v, has := c.object[name]; has && v != nil {
			if _, ok := v.(object); !ok {
				return nil, bad("%s is no object", name)
			}
		}
	}
	for _, name := range []string{"mounts"} {
		if v, has := c.object[name]; has && v != nil {
			if _, ok := v.([]any); !ok {
				return nil, bad("%s is no list", name)
			}
		}
	}
	return c, nil
}

// part returns an object of the configuration, created if necessary.
func part(of object, name string) object {
	p, ok := of[name].(object)
	if !ok {
		p = object{}
		of[name] = p
	}
	return p
}

// root returns the absolute path of the container's file system.
func (c *config) root(bundle string) (string, error) {
	path, _ := part(c.object, "root")["path"].(string)
	if path == "" {
		return "", fmt.Errorf("%s/config.json: root.path is missing", bundle)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(bundle, path)
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
	if err != nil {
		return "", fmt.Errorf("%s/config.json: root.path: %w", bundle, err)
	}
	return path, nil
}

// writeConfig writes the task's config.json, and returns its environment.
func (o *oci) writeConfig(env []string) ([]string, error) {
	c, err := readConfig(o.Bundle)
	if err == nil {
		o.v.Root, err = c.root(o.Bundle)
	}
	if err != nil {
		return nil, err
	}
	part(c.object, "root")["path"] = o.v.Root
	process := part(c.object, "process")
	cwd, _ := process["cwd"].(string)
	if cwd == "" {
		cwd = "/"
		process["cwd"] = cwd
	}
	var own []string
	list, _ := process["env"].([]any)
	for _, v := range list {
		if kv, ok := v.(string); ok {
			own = append(own, kv)
		}
	}
	env = environment(env, own, nil, cwd)
	mounts, _ := c.object["mounts"].([]any)
	mounts = absolute(mounts, o.Bundle)
	args := slices.Clone(o.v.Command)
	if o.Script != "" {
		args[0] = scriptAt
		o.v.Command = args
		mounts = append(mounts, bind(o.Script, scriptAt, "ro"))
	}
	if p := o.Runtime.MountSpoolDir; p != "" {
		at, err := o.v.Expand(p)
		if err != nil {
			return nil, fmt.Errorf("MountSpoolDir of oci.conf: %w", err)
		}
		mounts = append(mounts, bind(o.v.Spool, at, "rw"))
	}
	for _, f := range deviceFiles(o.Devices) {
		mounts = append(mounts, bind(f, f, "rw"))
	}
	process["args"], process["env"] = args, env
	process["terminal"] = o.Runtime.Run != "" && isTerminal(os.Stdin)
	delete(process, "commandLine") // for other systems; takes precedence over args
	c.own(uint64(os.Getuid()), uint64(os.Getgid()), mounts)
	c.object["mounts"] = mounts
	if hooks, ok := c.object["hooks"].(object); ok {
		for _, name := range o.Runtime.DisableHooks {
			delete(hooks, name)
		}
	}
	b, err := json.MarshalIndent(c.object, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(o.dir, "config.json"), b, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write config.json of a task: %w", err)
	}
	return env, nil
}

func bind(from, to, how string) object {
	return object{"destination": to, "type": "bind", "source": from, "options": []any{"bind", "nosuid", how}}
}

// absolute makes mount sources absolute that the bundle names relative to itself.
func absolute(mounts []any, bundle string) []any {
	for _, v := range mounts {
		m, ok := v.(object)
		if !ok {
			continue
		}
		source, _ := m["source"].(string)
		if isBind(m) && source != "" && !filepath.IsAbs(source) {
			m["source"] = filepath.Join(bundle, source)
		}
	}
	return mounts
}

func isBind(m object) bool {
	options, _ := m["options"].([]any)
	return m["type"] == "bind" || slices.Contains(options, any("bind")) || slices.Contains(options, any("rbind"))
}

// own makes the user who runs the container its user, if the bundle was made for another. Without root this needs a user
// namespace, and without subordinate ids the namespace has only one user.
func (c *config) own(uid, gid uint64, mounts []any) {
	linux := part(c.object, "linux")
	spaces, _ := linux["namespaces"].([]any)
	has := false
	for _, v := range spaces {
		if s, ok := v.(object); ok && s["type"] == "user" {
			if path, _ := s["path"].(string); path != "" {
				return // join an existing one
			}
			has = true
		}
	}
	if !has {
		linux["namespaces"] = append(spaces, object{"type": "user"})
	}
	user := part(part(c.object, "process"), "user")
	if !maps(linux["uidMappings"], uid) {
		linux["uidMappings"] = []any{object{"containerID": number(user["uid"]), "hostID": uid, "size": 1}}
	}
	if maps(linux["gidMappings"], gid) {
		return
	}
	inside := number(user["gid"])
	linux["gidMappings"] = []any{object{"containerID": inside, "hostID": gid, "size": 1}}
	delete(user, "additionalGids")
	for _, v := range mounts {
		m, ok := v.(object)
		if options, has := m["options"].([]any); ok && has {
			m["options"] = slices.DeleteFunc(options, func(o any) bool { // a group that does not exist
				text, _ := o.(string)
				value, is := strings.CutPrefix(text, "gid=")
				return is && value != fmt.Sprint(inside)
			})
		}
	}
}

// maps reports whether the mappings include an id of the node.
func maps(mappings any, id uint64) bool {
	list, _ := mappings.([]any)
	return slices.ContainsFunc(list, func(v any) bool {
		m, _ := v.(object)
		first := number(m["hostID"])
		return id >= first && id-first < number(m["size"])
	})
}

func number(v any) uint64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return uint64(max(i, 0))
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
