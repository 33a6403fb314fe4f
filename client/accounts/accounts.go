// Package accounts finds users and groups.
//
// Names come from /etc/passwd and /etc/group, then from getent(1): the binaries are static, so the C library's name service
// (LDAP, SSSD) is only to be had by asking a program that has it.
package accounts

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
)

// User finds a user by name or number.
func User(who string) (Account, bool) {
	data, _ := os.ReadFile("/etc/passwd")
	if a, ok := findUser(data, who); ok {
		return a, true
	}
	out, err := exec.Command("getent", "passwd", "--", who).Output()
	if err != nil {
		return Account{}, false
	}
	return findUser(out, who)
}

func findUser(passwd []byte, who string) (Account, bool) {
	uid, numeric := Decimal([]byte(who))
	for len(passwd) > 0 {
		var line []byte
		line, passwd, _ = bytes.Cut(passwd, []byte("\n"))
		if a, ok := passwdLine(line); ok && (a.Name == who || (numeric && a.UID == uid)) {
			return a, true
		}
	}
	return Account{}, false
}

// UID gives the uid of a name, or of a number even when nobody has it.
func UID(who string) (uint32, bool) {
	if a, ok := User(who); ok {
		return a.UID, true
	}
	return Decimal([]byte(who))
}

// GID finds a group by name or number.
func GID(group string) (uint32, bool) {
	if n, ok := Decimal([]byte(group)); ok {
		return n, true
	}
	data, _ := os.ReadFile("/etc/group")
	if gid, ok := findGroup(data, group); ok {
		return gid, true
	}
	out, err := exec.Command("getent", "group", "--", group).Output()
	if err != nil {
		return 0, false
	}
	return findGroup(out, group)
}

func findGroup(groups []byte, name string) (uint32, bool) {
	for len(groups) > 0 {
		var line []byte
		line, groups, _ = bytes.Cut(groups, []byte("\n"))
		f := bytes.Split(line, []byte(":"))
		if len(f) >= 3 && string(f[0]) == name {
			return Decimal(f[2])
		}
	}
	return 0, false
}

// Self is the account of the user who runs the command; one without a line in passwd has a number for a name.
func Self() Account {
	uid := os.Getuid()
	if a, ok := User(strconv.Itoa(uid)); ok && a.UID == uint32(uid) {
		return a
	}
	return Account{Name: strconv.Itoa(uid), Home: "/", Shell: "/bin/sh", UID: uint32(uid), GID: uint32(os.Getgid())}
}

// Account is a line of passwd(5).
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
}

// passwdLine reads "name:x:uid:gid:gecos:home:shell".
func passwdLine(line []byte) (Account, bool) {
	f := bytes.Split(line, []byte(":"))
	if len(f) < 7 {
		return Account{}, false
	}
	uid, okUID := Decimal(f[2])
	gid, okGID := Decimal(f[3])
	return Account{Name: string(f[0]), Home: string(f[5]), Shell: string(f[6]), UID: uid, GID: gid}, okUID && okGID
}

// Decimal reads a number of digits alone, below the value that stands for no id.
func Decimal(b []byte) (uint32, bool) {
	n := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<32 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), len(b) > 0 && n < 1<<32-1
}
