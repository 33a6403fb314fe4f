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

// DefaultConf is the configuration file if SLURM_CONF is not set (slurm.conf(5)).
const DefaultConf = "/etc/slurm/slurm.conf"

// FetchedConf is where the node daemon of a host without its own configuration stores the slurm.conf that it gets from the
// controller.
const FetchedConf = "/run/sluice/conf/slurm.conf"

// ConfPath returns the path of this host's slurm.conf: SLURM_CONF, else DefaultConf, else FetchedConf. A job may have inherited,
// from another host, a SLURM_CONF that does not exist here; inside a job a missing file is therefore ignored.
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
	return cmp.Or(named, usual[0]) // for the error message
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func readConf(getenv func(string) string) (path string, data []byte, err error) {
	path = ConfPath(getenv)
	data, err = os.ReadFile(path)
	return path, data, err
}

// clusterRecord is the file that `sluice up` keeps in a cluster's directory.
const clusterRecord = "cluster.json"

// runDir has the daemons' sockets, except for a controller that runs as a service with its own user: runDir belongs to root, so
// that controller has a directory of its own (RuntimeDirectory= of deploy/systemd/sluice-ctld.service).
const (
	runDir     = "/run/sluice"
	serviceDir = "-ctld" // appended to runDir
)

// SocketPath returns the controller's socket. In order of precedence: $SLUICE_SOCKET; run/ctld.sock beside slurm.conf, where
// `sluice up` puts it; the directory of ClusterName in /run/sluice-ctld, if the controller is a service of this host; or in
// /run/sluice, which has ctld.sock on the controller's host and relay.sock on others. A SLUICE_SOCKET that a job inherited from
// another host and whose directory does not exist here is ignored.
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
		// The socket is missing while the controller restarts. The directory still identifies a cluster of `sluice up`, and a
		// command waits for its controller.
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
	// The service manager creates and removes the directory with the service: while it exists, the controller runs or will return.
	if dir := filepath.Join(run+serviceDir, name); !missing(dir) {
		return filepath.Join(dir, "ctld.sock"), nil
	}
	return besides(filepath.Join(run, name)), nil
}

// besides chooses the socket in a cluster's directory. The controller's stays the first choice while the controller restarts: its
// socket is missing then, but the directory has no relay either, or one that leads to the same controller.
func besides(dir string) string {
	ctld, relay := filepath.Join(dir, "ctld.sock"), filepath.Join(dir, "relay.sock")
	if _, err := os.Lstat(ctld); err != nil {
		if _, err := os.Lstat(relay); err == nil {
			return relay
		}
	}
	return ctld
}

// onlyRelay returns the relay of a host without configuration, if there is exactly one.
func onlyRelay(run string) (path string, ok bool) {
	found, _ := filepath.Glob(filepath.Join(run, "*", "relay.sock"))
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// ClusterName reads one key of slurm.conf. Commands need only that key, and a full parse would cost more than the call to the
// controller. Later lines win; Include is not followed, which only the daemons do.
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

// defaultMessageTimeoutS is the default of MessageTimeout.
const defaultMessageTimeoutS = 10

// MessageTimeoutS returns MessageTimeout, in seconds.
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

// keyIn returns the value of a key of slurm.conf, "" if it is not set.
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

// Settings returns the values of some keys of slurm.conf, in the order of names; values may contain blanks. A missing key gives "".
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
