package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-hpc/sluice/internal/trusted"
)

// makeBase creates this node's directory below BasePath, and returns its real path.
func makeBase(base string, auto bool) (string, error) {
	above := filepath.Dir(base)
	var err error
	if auto {
		above, err = makeAll(above)
	} else {
		above, err = trusted.Path(above)
	}
	if err != nil {
		return "", err
	}
	base = filepath.Join(above, filepath.Base(base))
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return checkBase(base)
}

// makeAll creates a directory and its parents. It creates nothing below a directory that a user may change.
func makeAll(path string) (real string, err error) {
	real, err = trusted.Path(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	above, err := makeAll(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(above, filepath.Base(path))
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return trusted.Path(path)
}

// checkBase returns the real path of a node's directory. In a directory such as /tmp any user may have created it, so it must
// belong to root itself, and nobody else may write to it. Once true, this stays true: only root can then replace it.
func checkBase(base string) (real string, err error) {
	above, err := trusted.Path(filepath.Dir(base))
	if err != nil {
		return "", err
	}
	real = filepath.Join(above, filepath.Base(base))
	info, err := os.Lstat(real)
	if err != nil {
		return "", err
	}
	switch owner := info.Sys().(*syscall.Stat_t).Uid; {
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", real)
	case owner != 0:
		return "", fmt.Errorf("%s belongs to uid %d, not to root", real, owner)
	case info.Mode()&0o022 != 0:
		return "", fmt.Errorf("%s is writable by others than root (it has %#o)", real, info.Mode().Perm())
	}
	return real, nil
}

func openBase(base string) (*os.Root, error) {
	real, err := checkBase(base)
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(real)
}
