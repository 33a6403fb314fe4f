package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// DefaultConf is the configuration file when SLURM_CONF is not set (slurm.conf(5)).
const DefaultConf = "/etc/slurm/slurm.conf"

// SocketPath says where the controller of this host listens: $SLUICE_SOCKET, else below /run/sluice with the ClusterName of
// slurm.conf.
func SocketPath(getenv func(string) string) (string, error) {
	if s := getenv("SLUICE_SOCKET"); s != "" {
		return s, nil
	}
	name, err := ClusterName(getenv)
	if err != nil {
		return "", err
	}
	return "/run/sluice/" + name + "/ctld.sock", nil
}

// ClusterName reads one key of slurm.conf. The commands need nothing else of it, and a full parse would cost more than the
// call to the controller: later lines win, Include is followed only by the daemons.
func ClusterName(getenv func(string) string) (string, error) {
	path := getenv("SLURM_CONF")
	if path == "" {
		path = DefaultConf
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the configuration: %w (set SLURM_CONF to the cluster's slurm.conf, or SLUICE_SOCKET to its socket)", err)
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
	path := getenv("SLURM_CONF")
	if path == "" {
		path = DefaultConf
	}
	data, err := os.ReadFile(path)
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
