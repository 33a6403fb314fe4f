package passwd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// sssdSocket is where the C library contacts sssd.
const sssdSocket = "var/lib/sss/pipes/nss"

// stopped returns an error if a database of nsswitch.conf(5) uses sssd and sssd is not running: getent(1) then reports every user
// as unknown. Many distributions list sss even where sssd is not in use, so sssd must also be configured. Tests set root, otherwise
// /. It cannot tell about nslcd and other services.
func stopped(root, database string) error {
	conf, _ := os.ReadFile(filepath.Join(root, "etc/nsswitch.conf"))
	uses := false
	for line := range bytes.Lines(conf) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		name, sources, found := bytes.Cut(line, []byte(":"))
		if found && string(bytes.TrimSpace(name)) == database {
			uses = slices.ContainsFunc(bytes.Fields(sources), func(s []byte) bool { return string(s) == "sss" })
		}
	}
	if !uses {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, "etc/sssd/sssd.conf")); err != nil {
		return nil
	}
	if err := connects(filepath.Join(root, sssdSocket)); err != nil {
		return fmt.Errorf("sssd does not run: %w", err)
	}
	return nil
}

// connects tests whether anything listens on a socket. (Package net would be larger than the rest of a command that names users.)
func connects(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil // inconclusive
	}
	defer syscall.Close(fd)
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err == syscall.EAGAIN { // its backlog is full
		return nil
	}
	return err
}
