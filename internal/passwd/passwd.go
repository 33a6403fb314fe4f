// Package passwd looks up users and groups (passwd(5), group(5)); it has nothing to do with the accounts of sacctmgr.
//
// It reads /etc/passwd and /etc/group, then asks getent(1): the binaries are static, so directories such as LDAP and
// SSSD can only be queried through a program that links the C library's name service.
package passwd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nobody stands for users without an id here: owners of files on other hosts, users of other user namespaces, services without
// privileges.
const nobody = 65534

// System reports whether an id is a system account, given the lowest id of users and groups: ids below least, and nobody. With 1
// there are none.
func System(id, least uint32) bool { return id < least || id == nobody && least > 1 }

// patience is how long getent(1) may wait for an unresponsive directory service.
const patience = 5 * time.Second

// Start starts getent(1). A daemon without network replaces it by a function that starts a program in the machine's network.
var Start = (*exec.Cmd).Start

// getent asks the C library's name service; it returns nil if the entry is unknown or the answer takes too long.
func getent(database, key string) []byte {
	out, _ := askDirectory(context.Background(), database, key)
	return out
}

// askDirectory is getent that distinguishes an unknown entry (nil) from a failed lookup (an error). A machine without getent(1) has
// no name service. glibc's getent reports "not found" (2) even while the service is stopped: see stopped (sssd) and Absent
// (others).
func askDirectory(ctx context.Context, database, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", database, "--", key)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err := Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var ended *exec.ExitError
	switch {
	case err == nil:
		return out.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, nil
	case errors.As(err, &ended) && ended.ExitCode() == 2: // getent(1)
		if err = stopped("/", database); err == nil {
			return nil, nil
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, fmt.Errorf("cannot ask the name service for %s %s: %w", database, key, err)
}

// User finds a user by name or number.
func User(who string) (Account, bool) {
	data, _ := os.ReadFile("/etc/passwd")
	if a, ok := findUser(data, who); ok {
		return a, true
	}
	return findUser(getent("passwd", who), who)
}

// Find is User that distinguishes an unknown user from one who cannot be looked up at the moment.
func Find(who string) (a Account, known bool, err error) { return find(context.Background(), who) }

func find(ctx context.Context, who string) (a Account, known bool, err error) {
	data, _ := os.ReadFile("/etc/passwd")
	if a, known = findUser(data, who); known {
		return a, true, nil
	}
	if data, err = askDirectory(ctx, "passwd", who); err != nil {
		return Account{}, false, err
	}
	a, known = findUser(data, who)
	return a, known, nil
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

// UID returns the uid of a name; a number need not belong to a user.
func UID(who string) (uint32, bool) {
	if a, ok := User(who); ok {
		return a.UID, true
	}
	return Decimal([]byte(who))
}

// GID returns the gid of a group's name; a number need not belong to a group.
func GID(group string) (uint32, bool) {
	if n, ok := Decimal([]byte(group)); ok {
		return n, true
	}
	_, gid, ok := Group(group)
	return gid, ok
}

// Group finds a group by name or number.
func Group(which string) (name string, gid uint32, ok bool) {
	data, _ := os.ReadFile("/etc/group")
	if name, gid, ok := findGroup(data, which); ok {
		return name, gid, true
	}
	return findGroup(getent("group", which), which)
}

func findGroup(groups []byte, which string) (name string, gid uint32, ok bool) {
	id, numeric := Decimal([]byte(which))
	for len(groups) > 0 {
		var line []byte
		line, groups, _ = bytes.Cut(groups, []byte("\n"))
		f := bytes.Split(line, []byte(":"))
		if len(f) < 3 {
			continue
		}
		if gid, ok := Decimal(f[2]); ok && (string(f[0]) == which || (numeric && gid == id)) {
			return string(f[0]), gid, true
		}
	}
	return "", 0, false
}

// Groups returns the gids that a login would give the user, that of passwd(5) first. If the directory does not answer, its groups
// are missing.
func Groups(a Account) []uint32 {
	gids, _ := AllGroups(context.Background(), a)
	return gids
}

// AllGroups is Groups that returns an error if the directory did not answer.
func AllGroups(ctx context.Context, a Account) ([]uint32, error) {
	gids := []uint32{a.GID}
	add := func(gid uint32, ok bool) {
		if ok && !slices.Contains(gids, gid) {
			gids = append(gids, gid)
		}
	}
	data, _ := os.ReadFile("/etc/group")
	for line := range bytes.Lines(data) {
		f := bytes.Split(bytes.TrimSpace(line), []byte(":"))
		if len(f) == 4 && slices.Contains(strings.Split(string(f[3]), ","), a.Name) {
			add(Decimal(f[2]))
		}
	}
	out, err := askDirectory(ctx, "initgroups", a.Name)
	words := bytes.Fields(out) // the name, then the gids
	for _, w := range words[min(1, len(words)):] {
		add(Decimal(w))
	}
	return gids, err
}

// Self returns the account of the user who runs the command; without an entry in passwd the name is the number.
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
	Gecos             string // full name and contact information
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
	return Account{Name: string(f[0]), Gecos: string(f[4]), Home: string(f[5]), Shell: string(f[6]), UID: uid, GID: gid}, okUID && okGID
}

// Decimal reads a number that consists only of digits and is below the reserved id.
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

// GroupName returns the name of a group, "" if it has none.
func GroupName(gid uint32) string {
	name, _, _ := Group(strconv.FormatUint(uint64(gid), 10))
	return name
}
