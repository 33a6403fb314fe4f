package inherit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// spared is how the out-of-memory killer treats this process, and what it starts.
var spared struct {
	sync.Mutex
	file       *os.File // nil: as it has found itself
	own, plain []byte
}

// Spare has the out-of-memory killer of the kernel spare this process (proc(5), oom_score_adj, from -1000, never, to 1000): adj, unless
// whoever started it has chosen something else than 0. What is started with Start from then on is killed as any process is, also where
// this one is spared by whoever started it (OOMScoreAdjust=): one that is spared by root may have itself spared less, and again as before.
// Otherwise it must be called while this process has root's rights; it may give them up later.
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

// unspared runs start while this process is as any other for the out-of-memory killer: what it makes inherits that, from its first moment.
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
