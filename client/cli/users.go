package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
)

// Names of users come from /etc/passwd, then from getent(1): the binary is static, so the C library's name service (LDAP,
// SSSD) is only to be had by asking a program that has it.

// lookupUser finds a user by name or number.
func lookupUser(who string) (account, bool) {
	data, _ := os.ReadFile("/etc/passwd")
	if a, ok := findUser(data, who); ok {
		return a, true
	}
	out, err := exec.Command("getent", "passwd", "--", who).Output()
	if err != nil {
		return account{}, false
	}
	return findUser(out, who)
}

func findUser(passwd []byte, who string) (account, bool) {
	uid, numeric := decimal([]byte(who))
	for len(passwd) > 0 {
		var line []byte
		line, passwd, _ = bytes.Cut(passwd, []byte("\n"))
		if a, ok := passwdLine(line); ok && (a.name == who || (numeric && a.uid == uid)) {
			return a, true
		}
	}
	return account{}, false
}

// lookupUID gives the uid of a name, or of a number even when nobody has it.
func lookupUID(who string) (uint32, bool) {
	if a, ok := lookupUser(who); ok {
		return a.uid, true
	}
	return decimal([]byte(who))
}

// lookupGID finds a group by name or number.
func lookupGID(group string) (uint32, bool) {
	if n, ok := decimal([]byte(group)); ok {
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
			return decimal(f[2])
		}
	}
	return 0, false
}

// self is the account of the user who runs the command; one without a line in passwd has a number for a name.
func self() account {
	uid := os.Getuid()
	if a, ok := lookupUser(strconv.Itoa(uid)); ok && a.uid == uint32(uid) {
		return a
	}
	return account{name: strconv.Itoa(uid), home: "/", shell: "/bin/sh", uid: uint32(uid), gid: uint32(os.Getgid())}
}
