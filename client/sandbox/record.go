package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// record is the content of DIR/cluster.json.
type record struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"` // ClusterName
	Conf    string `json:"conf"`    // path of slurm.conf
	Nodes   int    `json:"nodes"`   // of a generated configuration; 0: the user's configuration
	// GPUs are the simulated GPUs of each node (sluice-noded --gpus); empty: those of the machine.
	GPUs string `json:"gpus,omitempty"`
	// Pretend: its nodes are simulated by one process and execute nothing.
	Pretend bool `json:"pretend,omitempty"`
	// Started is set before the first daemon starts: until then nothing in the directory is worth keeping, and another `sluice up`
	// starts over.
	Started bool `json:"started"`
	// Made are the names in the directory that Up creates, "." for the directory itself; written before they are created. --wipe
	// deletes nothing else.
	Made []string `json:"made"`
	// Daemons by name: "ctld", or "noded." and the name of a node.
	Daemons map[string]identity `json:"daemons"`
}

const recordVersion = 2

// load reads the record; nil without error if there is none.
func (d Dir) load() (*record, error) {
	b, err := os.ReadFile(d.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's record: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil || r.Version < 1 || r.Version > recordVersion || r.Conf == "" {
		return nil,
			fmt.Errorf(
				"cannot read the cluster's record %s: it is damaged or of another version; stop the daemons with `sluice down --dir "+
					"%s`, or give another --dir",
				d.recordFile(), d)
	}
	if r.Version == 1 { // it had no list: these were always created
		r.Version, r.Started = recordVersion, true
		r.Made = append([]string{recordName, lockFile, ".", "bin", envName}, folders...)
		if r.Nodes > 0 {
			r.Made = append(r.Made, confNames...)
		}
	}
	if r.Daemons == nil {
		r.Daemons = map[string]identity{}
	}
	return r, nil
}

// save replaces the record.
func (d Dir) save(r *record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the cluster's record: %w", err)
	}
	return replaceFile(d.recordFile(), append(b, '\n'))
}

// replaceFile writes a temporary file and renames it, so that a reader sees either the old or the new content.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
