// Package container runs the tasks of a step in a container, with no rights that their user does not have: everything
// runs as the user, in the cgroup of the step.
//
// # How
//
// Once for each node of a step, before its tasks, Setup has Podman pull the image, create a container and initialise it
// ("podman init"): the OCI runtime has then made its namespaces, mounts and devices, and waits to be told to execute a
// program. It never is. Each task enters the user and mount namespaces of that process by nsenter(1) (Enter), as its
// last act before it becomes the user's program. So the process that the shim has forked is the task, as without a
// container: its exit status, signals, files, terminal, cgroup, CPUs and limits are those of any task, tasks of a node
// share memory and see each other's processes, and no daemon carries their output. There is no PID namespace: the
// container's /proc is the node's. The time limit stands still while the container is made.
//
// A task in an OCI bundle (--container) becomes the runtime that oci.conf names, on a config.json made from the
// bundle's.
//
// # Storage
//
// In the node's spool each user has a directory of their own, with the images that their steps have pulled ("images")
// and the containers that have a name, which stay ("named"). Any other container has a directory until its step is
// forgotten. Podman's state is in the same directory as the container, so that steps share nothing but images, which are
// pulled one at a time. That also keeps the process with which Podman holds its namespaces in the cgroup of the step,
// whose end ends it.
//
// Rejected: "podman run" as the task, which puts two processes between the shim and the program, copies its output,
// turns a signal into an exit code, and gives each task namespaces of its own, over which GPUs of one node cannot share
// memory. Entering by system calls of our own: a process with several threads, as all of Go's are, cannot enter a user
// namespace.
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

// Job is what Setup and Enter are told, by the shim.
type Job struct {
	Step    string                `json:"step"` // folder of a container that ends with its step
	User    string                `json:"user"` // folder of what stays
	Run     string                `json:"run"`  // the user's folder for what lasts as long as processes do; Podman takes short names only
	Spec    *pb.ContainerSpec     `json:"spec"`
	Devices []*pb.ContainerDevice `json:"devices,omitempty"`
	Script  string                `json:"script,omitempty"` // of a batch job
	Node    string                `json:"node"`

	// Of --container, in place of Spec:
	Bundle  string         `json:"bundle,omitempty"`
	Runtime *pb.OciRuntime `json:"runtime,omitempty"`
	ID      uint32         `json:"id,omitempty"`     // of the job
	Number  uint32         `json:"number,omitempty"` // of the step
	Task    uint32         `json:"task,omitempty"`   // in the step
}

// Folder is where the shims make these folders, in the spool.
const Folder = "containers"

// RunFolder is where they make those for what lasts as long as processes do: there may be several nodes on a host.
func RunFolder(spool string) string {
	base := "/run"
	if os.Geteuid() != 0 {
		base = "/tmp"
	}
	return base + "/sluice-" + short(spool)
}

// short is a short name for a long one.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// Names in a user's folder.
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

// Encode is for a command line.
func (j *Job) Encode() (string, error) {
	b, err := json.Marshal(j)
	return string(b), err
}

// Decode is the other side of it.
func Decode(s string) (*Job, error) {
	j := &Job{}
	if err := json.Unmarshal([]byte(s), j); err != nil {
		return nil, fmt.Errorf("cannot read what container is meant: %w", err)
	}
	if j.Step == "" || j.User == "" || j.Run == "" || j.Spec == nil && (j.Runtime == nil || j.Bundle == "") {
		return nil, errors.New("cannot read what container is meant: something is missing")
	}
	return j, nil
}

// folder is where the container is.
func (j *Job) folder() string {
	if j.Spec.Name != "" {
		return filepath.Join(j.User, named, j.Spec.Name)
	}
	return j.Step
}

// process is one whose number cannot be mistaken for that of a later one.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

func (p process) alive() bool {
	start, err := startOf(p.PID)
	return err == nil && p.PID > 1 && start == p.Start
}

// state is a container as the tasks of a step enter it: by files of a process that is alive as long as the step is.
type state struct {
	By    process  `json:"by"`
	User  string   `json:"user"`  // namespace
	Mount string   `json:"mount"` // namespace
	Root  string   `json:"root"`
	Env   []string `json:"env"` // of the image
	Dir   string   `json:"dir"` // in which its programs begin
}

// stateOf is that of a container which the process of this step holds.
func stateOf(p process) *state {
	of := "/proc/" + strconv.Itoa(p.PID)
	return &state{By: p, User: of + "/ns/user", Mount: of + "/ns/mnt", Root: of + "/root"}
}

func (j *Job) statePath() string { return filepath.Join(j.Step, stateFile) }

// Made says whether the container of a step, by its folder, has been made.
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

// startOf is when a process was started, in ticks since the boot.
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
