package inherit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// spared has the OOM scores of this process and of its children.
var spared struct {
	sync.Mutex
	file       *os.File // nil: unchanged
	own, plain []byte
}

// Spare protects this process from the out-of-memory killer by setting oom_score_adj (proc(5), from -1000, never killed, to 1000)
// to adj, unless its parent has already chosen a value other than 0. Programs that Start starts from then on get 0, even if the
// parent's value (OOMScoreAdjust=) protects this process: a process may raise its own score and lower it again to the value that
// root gave it. In all other cases Spare requires root's rights, which may be dropped afterwards.
func Spare(adj int) error { return spareBy("/proc/self/oom_score_adj", adj, os.Geteuid() == 0) }

func spareBy(path string, adj int, root bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	switch {
	case err != nil:
		return err
	case found > 0 || found == 0 && !root:
		return nil
	case found < 0:
		adj = found
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	own := []byte(strconv.Itoa(adj))
	if _, err := f.Write(own); err != nil {
		f.Close()
		return fmt.Errorf("cannot be spared by the out-of-memory killer: %w", err)
	}
	spared.Lock()
	defer spared.Unlock()
	spared.file, spared.own, spared.plain = f, own, []byte("0")
	return nil
}

// unspared calls start while this process has the default score, which children inherit from their first moment.
func unspared(start func() error) error {
	spared.Lock()
	defer spared.Unlock()
	if spared.file == nil {
		return start()
	}
	_, _ = spared.file.WriteAt(spared.plain, 0)
	defer func() { _, _ = spared.file.WriteAt(spared.own, 0) }()
	return start()
}
