package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A job's script belongs to root; an access control list lets the job's user read and execute it, in a directory that nobody else
// can write to. If the user owned it, he could make it writable and append to it until the spool is full, even after the job has
// ended, through a descriptor or a hard link. Rejected: a group (its members could read the script, too), a memfd (scripts look
// at $0), a file in a user-owned directory (the user can write to it). On a file system without ACLs the script belongs to the
// user.

// aclName is the extended attribute of Linux for acl(5) lists, in the format of linux/posix_acl_xattr.h.
const aclName = "system.posix_acl_access"

// readable returns the ACL of a file that its owner and one user may read and execute, and nobody else: mode 0500 for two users.
func readable(uid uint32) []byte {
	const version, none = 2, ^uint32(0)
	const userObj, user, groupObj, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20
	const rx = unix.R_OK | unix.X_OK
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{userObj, rx, none}, {user, rx, uid}, {groupObj, 0, none}, {mask, rx, none}, {other, 0, none}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// listMode is the mode that a file with this list shows: the mask appears as the group's rights.
const listMode = 0o550

// give lets a user read and execute a root-owned file.
func give(fd int, uid, gid uint32) error {
	err := unix.Fsetxattr(fd, aclName, readable(uid), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return unix.Fchown(fd, int(uid), int(gid))
	}
	return err
}

// given reports whether the file belongs to root and exactly this user may read it.
func given(fd int, st *unix.Stat_t, uid uint32) bool {
	want := readable(uid)
	list := make([]byte, len(want)+1)
	n, err := unix.Fgetxattr(fd, aclName, list)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return st.Uid == uid && st.Mode == unix.S_IFREG|0o500
	}
	return err == nil && st.Uid == 0 && st.Mode == unix.S_IFREG|listMode && string(list[:n]) == string(want)
}

// Lists returns an error if the directory's file system has no access control lists.
func Lists(dir string) error {
	path := filepath.Join(dir, New+"acl")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	defer unix.Unlink(path)
	defer unix.Close(fd)
	if err := unix.Fsetxattr(fd, aclName, readable(65534), 0); err != nil {
		return fmt.Errorf("cannot set an access control list in %s: %w", dir, err)
	}
	return nil
}

// empty truncates a script before its directory is deleted, so that a descriptor or hard link that somebody keeps holds no space.
func empty(path string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && (st.Nlink > 1 || st.Size > smallScript) {
		_ = unix.Truncate(path, 0)
	}
}

// smallScript is the size of a script that may stay if somebody holds it open: about as much as the open file itself costs.
const smallScript = 4 << 10
