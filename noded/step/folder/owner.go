package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The script of a job is root's, and the job's user may read and execute it: by an access control list, in a folder that nobody else can
// write to. If it were the user's own, he could make it writable and append to it until the spool is full for everybody, also after the job
// has ended, through a descriptor or a hard link. Rejected: a group (those who are in it could read the script, too), a descriptor of a
// memfd (scripts look at $0), a file in a folder of the user's (it is his to write to). A file system without such lists is used as it is:
// the script is the user's there.

// aclName is the extended attribute by which Linux reads and writes the list of acl(5), in the format of linux/posix_acl_xattr.h.
const aclName = "system.posix_acl_access"

// readable is the list of a file that its owner may read and execute, one user too, and nobody else: as mode 0500 was, for two.
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

// listMode is the mode that a file has with the list of readable: the mask shows as the group's rights.
const listMode = 0o550

// give lets a user read and execute a file of root's.
func give(fd int, uid, gid uint32) error {
	err := unix.Fsetxattr(fd, aclName, readable(uid), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return unix.Fchown(fd, int(uid), int(gid))
	}
	return err
}

// given: the file is root's and the user's to read, and no more than that.
func given(fd int, st *unix.Stat_t, uid uint32) bool {
	want := readable(uid)
	list := make([]byte, len(want)+1)
	n, err := unix.Fgetxattr(fd, aclName, list)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return st.Uid == uid && st.Mode == unix.S_IFREG|0o500
	}
	return err == nil && st.Uid == 0 && st.Mode == unix.S_IFREG|listMode && string(list[:n]) == string(want)
}

// Lists says whether the file system of a folder has access control lists: why not, and that is worth a warning.
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

// empty takes the content of a script away before its folder is deleted: a descriptor or a hard link that somebody has kept holds no space.
func empty(path string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && (st.Nlink > 1 || st.Size > smallScript) {
		_ = unix.Truncate(path, 0)
	}
}

// smallScript is what may stay of a script that somebody holds open: about as much as the open file itself costs.
const smallScript = 4 << 10
