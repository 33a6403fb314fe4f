package accounts

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
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
	conn, err := net.DialTimeout("unix", filepath.Join(root, sssdSocket), time.Second)
	if err != nil {
		return fmt.Errorf("sssd does not run: %w", err)
	}
	_ = conn.Close()
	return nil
}
