package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Access to a group's files with few system calls: each job causes a dozen accesses. The names are this package's own, in
// directories that only root can write to.

func write(dir, file, data string) error {
	fd, err := open(dir+"/"+file, unix.O_WRONLY)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir + "/" + file, Err: err}
	}
	defer closeFD(fd)
	if _, err = transfer(unix.SYS_WRITE, fd, []byte(data)); err != nil {
		return &os.PathError{Op: "write", Path: dir + "/" + file, Err: err}
	}
	return nil
}

// readSmall returns the result of one read, which is all of a file with a few lines.
func readSmall(dir, file string) (string, error) {
	fd, err := open(dir+"/"+file, unix.O_RDONLY)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: dir + "/" + file, Err: err}
	}
	defer closeFD(fd)
	var buf [4096]byte
	n, err := transfer(unix.SYS_READ, fd, buf[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: dir + "/" + file, Err: err}
	}
	return string(buf[:n]), nil
}

// readValue finds key in lines of "key value".
func readValue(dir, file, key string) (uint64, error) {
	s, err := readSmall(dir, file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(s) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), " "); k == key {
			return strconv.ParseUint(v, 10, 64)
		}
	}
	return 0, fmt.Errorf("cannot find %s in %s/%s", key, dir, file)
}
