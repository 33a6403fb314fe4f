package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultConf is the configuration file when SLURM_CONF is not set (slurm.conf(5)).
const DefaultConf = "/etc/slurm/slurm.conf"

// FetchedConf is where the node daemon of a host without a configuration of its own puts the slurm.conf that it has from the controller.
const FetchedConf = "/run/sluice/conf/slurm.conf"

// ConfPath says where this host's slurm.conf is: SLURM_CONF, else DefaultConf, else FetchedConf. A job may have come from another host
// with an environment whose SLURM_CONF is not here; inside of a job a file that is missing counts as not named.
func ConfPath(getenv func(string) string) string { return confPath(getenv, DefaultConf, FetchedConf) }

func confPath(getenv func(string) string, usual ...string) string {
	named := getenv("SLURM_CONF")
	if named != "" && (getenv("SLURM_JOB_ID") == "" || !missing(named)) {
		return named
	}
	for _, path := range usual {
		if !missing(path) {
			return path
		}
	}
	return cmp.Or(named, usual[0]) // to be named in the error
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// readConf reads slurm.conf.
func readConf(getenv func(string) string) (path string, data []byte, err error) {
	path = ConfPath(getenv)
	data, err = os.ReadFile(path)
	return path, data, err
}

// clusterRecord is the file that `sluice up` keeps in the folder of a cluster.
const clusterRecord = "cluster.json"

// runDir is where daemons have their sockets, but for a controller that runs as a service with a user of its own: runDir belongs to root,
// and that one has a folder to itself (RuntimeDirectory= of deploy/systemd/sluice-ctld.service).
const (
	runDir     = "/run/sluice"
	serviceDir = "-ctld" // after runDir
)

// SocketPath says which socket leads to the controller: $SLUICE_SOCKET, else run/ctld.sock in the folder of slurm.conf, where
// `sluice up` has it, else with the ClusterName of slurm.conf below /run/sluice-ctld, where the controller is a service of this host, or
// below /run/sluice: ctld.sock on the controller's host, relay.sock on others.
// A SLUICE_SOCKET that has come with a job from another host, and whose folder is not here, counts as not set.
func SocketPath(getenv func(string) string) (string, error) { return socketPath(getenv, runDir) }

func socketPath(getenv func(string) string, run string) (string, error) {
	if s := getenv("SLUICE_SOCKET"); s != "" && (getenv("SLURM_JOB_ID") == "" || !missing(filepath.Dir(s))) {
		return s, nil
	}
	if path := getenv("SLURM_CONF"); path != "" {
		socket := filepath.Join(filepath.Dir(path), "run/ctld.sock")
		if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
			return socket, nil
		}
		// While its controller restarts there is no socket. A cluster of `sluice up` it is nonetheless, and a command waits for that one.
		if info, err := os.Lstat(filepath.Join(filepath.Dir(path), clusterRecord)); err == nil && info.Mode().IsRegular() {
			return socket, nil
		}
	}
	name, err := ClusterName(getenv)
	if err != nil {
		if relay, ok := onlyRelay(run); ok {
			return relay, nil
		}
		return "", err
	}
	// The service manager makes and removes that folder with the service: while it is there the controller is, or comes back.
	if dir := filepath.Join(run+serviceDir, name); !missing(dir) {
		return filepath.Join(dir, "ctld.sock"), nil
	}
	return besides(filepath.Join(run, name)), nil
}

// besides chooses the socket in the folder of a cluster. That of the controller stays the first choice while a controller restarts: it has
// none then, but the folder has no relay either, or one that leads to the same controller.
func besides(dir string) string {
	ctld, relay := filepath.Join(dir, "ctld.sock"), filepath.Join(dir, "relay.sock")
	if _, err := os.Lstat(ctld); err != nil {
		if _, err := os.Lstat(relay); err == nil {
			return relay
		}
	}
	return ctld
}

// onlyRelay is the relay of a host that has no configuration, where there is one.
func onlyRelay(run string) (path string, ok bool) {
	found, _ := filepath.Glob(filepath.Join(run, "*", "relay.sock"))
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// ClusterName reads one key of slurm.conf. The commands need nothing else of it, and a full parse would cost more than the
// call to the controller: later lines win, Include is followed only by the daemons.
func ClusterName(getenv func(string) string) (string, error) {
	path, data, err := readConf(getenv)
	if err != nil {
		return "",
			fmt.Errorf("cannot read the configuration: %w (set SLURM_CONF to the cluster's slurm.conf, or SLUICE_SOCKET to its socket)",
				err)
	}
	name := clusterNameIn(data)
	if name == "" {
		return "", fmt.Errorf("cannot find ClusterName in %s: add a line ClusterName=NAME", path)
	}
	return name, nil
}

func clusterNameIn(data []byte) string { return strings.ToLower(keyIn(data, "ClusterName")) }

// defaultMessageTimeoutS is MessageTimeout where slurm.conf does not say.
const defaultMessageTimeoutS = 10

// MessageTimeoutS reads MessageTimeout, in seconds.
func MessageTimeoutS(getenv func(string) string) int {
	_, data, err := readConf(getenv)
	if err != nil {
		return defaultMessageTimeoutS
	}
	n, err := strconv.ParseUint(keyIn(data, "MessageTimeout"), 10, 16)
	if err != nil || n == 0 {
		return defaultMessageTimeoutS
	}
	return int(n)
}

// keyIn is the value of a key of slurm.conf, "" when it is not there.
func keyIn(data []byte, want string) string {
	name := ""
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(sc.Text()), "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(key), want) {
			continue
		}
		value = strings.TrimSpace(value)
		if i := strings.IndexAny(value, " \t#"); i >= 0 {
			value = value[:i]
		}
		name = strings.Trim(value, `"`)
	}
	return name
}

// Settings reads some keys of slurm.conf, in the order of names; values may have blanks. One that is not there is "".
func Settings(getenv func(string) string, names ...string) []string {
	values := make([]string, len(names))
	_, data, err := readConf(getenv)
	if err != nil {
		return values
	}
	for line := range bytes.Lines(data) {
		key, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte{'='})
		if !ok {
			continue
		}
		for i, name := range names {
			if strings.EqualFold(string(bytes.TrimSpace(key)), name) {
				text, _, _ := strings.Cut(string(value), " #")
				values[i] = strings.Trim(strings.TrimSpace(text), `"`)
			}
		}
	}
	return values
}
