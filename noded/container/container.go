// Package container runs the tasks of a step in a container, with no rights beyond those of the user: everything runs as the
// user, in the cgroup of the step.
//
// # How
//
// Once for each node of a step, before its tasks, Setup makes Podman pull the image, create a container and initialise it
// ("podman init"): the OCI runtime has then created its namespaces, mounts and devices, and waits for the order to execute a
// program, which never comes. Each task enters the user and mount namespaces of that process with nsenter(1) (Enter), as its last
// step before it becomes the user's program. So the process that the shim has forked is the task, as without a container: its
// exit status, signals, files, terminal, cgroup, CPUs and limits are those of any task, tasks of a node share memory and see each
// other's processes, and no daemon carries their output. There is no PID namespace: the container's /proc is the node's. The time
// limit does not run while the container is created.
//
// A task in an OCI bundle (--container) becomes the runtime that oci.conf names, on a config.json made from the
// bundle's.
//
// # Storage
//
// In the node's spool each user has a directory with the images that their steps have pulled ("images") and the persistent, named
// containers ("named"). Any other container has a directory until its step is forgotten. Podman's state is in the container's
// directory, so that steps share only images, which are pulled one at a time. This also keeps the process with which Podman holds
// its namespaces in the step's cgroup, whose end ends it.
//
// Rejected: "podman run" as the task, which puts two processes between the shim and the program, copies its output, turns a
// signal into an exit code, and gives each task its own namespaces, so that GPUs of one node cannot share memory. Entering with
// our own system calls: a process with several threads, as every Go program is, cannot enter a user namespace.
package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Job is the shim's description for Setup and Enter.
type Job struct {
	Step    string                `json:"step"` // directory of a container that ends with its step
	User    string                `json:"user"` // directory of persistent files
	Run     string                `json:"run"`  // the user's directory for runtime state; Podman requires a short path
	Spec    *pb.ContainerSpec     `json:"spec"`
	Devices []*pb.ContainerDevice `json:"devices,omitempty"`
	Script  string                `json:"script,omitempty"` // for a batch job
	Node    string                `json:"node"`

	// For --container, in place of Spec:
	Bundle  string         `json:"bundle,omitempty"`
	Runtime *pb.OciRuntime `json:"runtime,omitempty"`
	ID      uint32         `json:"id,omitempty"`     // id of the job
	Number  uint32         `json:"number,omitempty"` // number of the step
	Task    uint32         `json:"task,omitempty"`   // number in the step
}

// Folder is the directory of these directories in the spool.
const Folder = "containers"

// RunFolder is the directory of runtime state: a host may have several nodes.
func RunFolder(spool string) string {
	base := "/run"
	if os.Geteuid() != 0 {
		base = "/tmp"
	}
	return base + "/sluice-" + short(spool)
}

// short returns a short name for a long one.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// Names in a user's directory.
const (
	images     = "images"
	named      = "named"
	blobs      = "blobs"       // Podman's temporary files
	stateFile  = "state.json"  // how the tasks of a step enter it
	holderFile = "holder.json" // the process that holds it
	madeFile   = "made.json"
	aboutFile  = "image.json"
	pidFile    = "pid"
)

// Encode encodes a Job for a command line.
func (j *Job) Encode() (string, error) {
	b, err := json.Marshal(j)
	return string(b), err
}

// Decode is the inverse of Encode.
func Decode(s string) (*Job, error) {
	j := &Job{}
	if err := json.Unmarshal([]byte(s), j); err != nil {
		return nil, fmt.Errorf("cannot decode the container's description: %w", err)
	}
	if j.Step == "" || j.User == "" || j.Run == "" || j.Spec == nil && (j.Runtime == nil || j.Bundle == "") {
		return nil, errors.New("cannot decode the container's description: it is incomplete")
	}
	return j, nil
}

// folder returns the container's directory.
func (j *Job) folder() string {
	if j.Spec.Name != "" {
		return filepath.Join(j.User, named, j.Spec.Name)
	}
	return j.Step
}

// process identifies a process even after its pid is reused.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func (p process) alive() bool {
	start, err := startOf(p.PID)
	return err == nil && p.PID > 1 && start == p.Start
}

// state is how the tasks of a step enter a container: through files of a process that lives as long as the step.
type state struct {
	By    process  `json:"by"`
	User  string   `json:"user"`  // namespace
	Mount string   `json:"mount"` // namespace
	Root  string   `json:"root"`
	Env   []string `json:"env"` // the image's environment
	Dir   string   `json:"dir"` // the image's working directory
}

// stateOf returns the state of a container held by the process.
func stateOf(p process) *state {
	of := "/proc/" + strconv.Itoa(p.PID)
	return &state{By: p, User: of + "/ns/user", Mount: of + "/ns/mnt", Root: of + "/root"}
}

func (j *Job) statePath() string { return filepath.Join(j.Step, stateFile) }

// Made reports whether the container of a step, by its directory, was created.
func Made(step string) bool {
	_, err := os.Lstat(filepath.Join(step, stateFile))
	return err == nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	return err
}

func writeJSON(path string, from any) error {
	b, err := json.Marshal(from)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// startOf returns when a process was started, in ticks since boot.
func startOf(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(f[19], 10, 64)
}
