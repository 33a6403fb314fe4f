package passwd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// sssdSocket is where the C library asks sssd.
const sssdSocket = "var/lib/sss/pipes/nss"

// stopped says that a database of nsswitch.conf(5) comes from sssd, and sssd does not run: getent(1) then calls everybody unknown. Many
// distributions name sss there also where sssd is not used, so that it has to be configured, too. root is / but for tests. Of nslcd and
// others nothing is known here.
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

// connects tries whether somebody listens on a socket. (Package net would be more than the rest of a command that names users.)
func connects(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil // that says nothing
	}
	defer syscall.Close(fd)
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err == syscall.EAGAIN { // many are waiting there
		return nil
	}
	return err
}
