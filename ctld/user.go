package ctld

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/internal/trusted"
	"golang.org/x/sys/unix"
)

// # The controller's privileges
//
// Started as root, it creates what only root can create (the two listeners, a log in a root-owned directory, the first state directory),
// gives SlurmUser's part away, and then becomes SlurmUser for good, with the groups of that user and without a capability. Nothing later
// needs more: programs, mail and job_submit.lua run as SlurmUser anyway. With SlurmUser=root, the default, there is nothing to drop.
//
// Root follows no path here that SlurmUser could change. The state directory is given away once, while it is still root's; a log is
// created, or given away, in a root-owned directory (giveLog), and otherwise opened as SlurmUser. The socket is created with SlurmUser's
// rights if SlurmUser could change its directory.

// listeners are opened first: SlurmctldPort may be below 1024, and the socket in a root-owned directory.
type listeners struct {
	local, nodes net.Listener
	metrics      net.Listener // nil: metrics are not served
}

func (l *listeners) close() {
	for _, x := range []net.Listener{l.local, l.nodes, l.metrics} {
		if x != nil {
			_ = x.Close()
		}
	}
}

func (d *daemon) listen(user string) (l listeners, err error) {
	if l.nodes, err = tcp.Listen(d.opts.Listen); err != nil {
		return l, fmt.Errorf("cannot listen for nodes on %s (SlurmctldPort): %w", d.opts.Listen, err)
	}
	if l.local, err = d.listenLocal(user); err != nil {
		l.close()
		return l, err
	}
	l.metrics = d.listenMetrics()
	return l, nil
}

// listenLocal opens the socket of commands: as root in a directory that only root can change; otherwise, because root could be misled, with
// SlurmUser's rights.
func (d *daemon) listenLocal(user string) (l net.Listener, err error) {
	open := func() (err error) {
		l, err = rpc.Listen(d.opts.Socket)
		return err
	}
	u, ok := passwd.User(user)
	if !d.opts.Drop || os.Geteuid() != 0 || !ok || u.UID == 0 || onlyRootChanges(d.opts.Socket) {
		return l, open()
	}
	return l, actAs(u, open)
}

// onlyRootChanges reports whether only root can change where a path leads, as far as it exists.
func onlyRootChanges(path string) bool {
	path, err := filepath.Abs(path)
	for err == nil && path != "/" {
		path = filepath.Dir(path)
		if _, err = trusted.Path(path); err == nil {
			fi, err := os.Stat(path) // with the sticky bit others may create files in it
			return err == nil && fi.Mode().Perm()&0o002 == 0
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		err = nil
	}
	return err == nil
}

// becomeSlurmUser gives up root's rights, if the process has them and slurm.conf names another user.
func (d *daemon) becomeSlurmUser(c *conf.Config) error {
	if !d.opts.Drop || os.Geteuid() != 0 {
		return nil
	}
	u, ok := passwd.User(c.SlurmUser)
	if !ok {
		return fmt.Errorf("SlurmUser=%s does not exist on this machine", c.SlurmUser)
	}
	if u.UID == 0 {
		return nil
	}
	if err := giveState(d.opts.State, u); err != nil {
		return fmt.Errorf("cannot give the state directory to SlurmUser: %w", err)
	}
	if d.opts.LogFile != nil {
		if path := d.opts.LogFile(c.SlurmctldLogFile); path != "" {
			d.giveLog(path, 0o600, u)
		}
	}
	if s := d.jobcompSettings(); s.Path != "" {
		d.giveLog(s.Path, 0o644, u)
	}
	if err := become(u); err != nil {
		return fmt.Errorf("cannot become SlurmUser=%s: %w", u.Name, err)
	}
	if f, err := os.Open(d.opts.Conf); err != nil { // scontrol reconfigure reads it again
		return fmt.Errorf("SlurmUser must be able to read slurm.conf: %w", err)
	} else {
		_ = f.Close()
	}
	d.log.Info("running as SlurmUser", "user", u.Name, "uid", u.UID)
	return nil
}

// become changes all user and group ids of all threads: this cannot be undone, and no capability is left.
func become(u passwd.Account) error {
	var gids []int
	for _, g := range passwd.Groups(u) {
		gids = append(gids, int(g))
	}
	gid, uid := int(u.GID), int(u.UID)
	return errors.Join(syscall.Setgroups(gids), syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid))
}

// giveState gives a root-owned state directory, with its contents, to the user: an earlier controller made it as root. Once it is the
// user's, root never looks into it again.
func giveState(dir string, u passwd.Account) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := trusted.Path(filepath.Dir(dir)); err == nil { // otherwise SlurmUser makes it
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch owner := fi.Sys().(*syscall.Stat_t).Uid; {
	case fi.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link that belongs to uid %d: name the directory itself", dir, owner)
	case owner != 0:
		return nil // opening it will report the error
	}
	if _, err := trusted.Path(dir); err != nil {
		// An empty one can go: SlurmUser, who owns the directory above, creates it again.
		if asOwnerOf(filepath.Dir(dir), func() error { return unix.Rmdir(dir) }) == nil {
			return nil
		}
		return fmt.Errorf("other users can change it: %w; run chown -R on it", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return root.Lchown(name, int(u.UID), int(u.GID))
	})
	return errors.Join(err, root.Lchown(".", int(u.UID), int(u.GID))) // last: until then only root can change the contents
}

// giveLog provides a log that SlurmUser can append to, in directories where SlurmUser's own rights do not suffice; if that cannot be done
// safely, it logs what the administrator can do. Opening the log later reports other errors.
func (d *daemon) giveLog(path string, mode os.FileMode, u passwd.Account) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = giveLog(path, mode, u)
	}
	if err != nil {
		d.log.Warn("SlurmUser may not be able to write to a log", "file", path, "err", err, "help",
			fmt.Sprintf("chown %s %s", u.Name, path))
	}
}

// giveLog creates a log, or gives away a root-owned one, in a directory that only root can change. In a root-owned directory that a group
// can write to (/var/log is root:syslog 0775 in Ubuntu) it only gives away a file that it has just created: members of the group may have
// put an existing one there under this name.
func giveLog(path string, mode os.FileMode, u passwd.Account) error {
	dir := filepath.Dir(path)
	alone := true
	if _, err := trusted.Path(dir); err != nil {
		fi, serr := os.Stat(dir)
		_, perr := trusted.Path(filepath.Dir(dir))
		if errors.Join(serr, perr) != nil || fi.Sys().(*syscall.Stat_t).Uid != 0 || fi.Mode().Perm()&0o002 != 0 {
			return nil // probably SlurmUser's directory
		}
		alone = false
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // only root can replace it
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	made := true
	file, err := unix.Openat(fd, filepath.Base(path), flags|unix.O_CREAT|unix.O_EXCL, uint32(mode))
	if errors.Is(err, unix.EEXIST) {
		made = false
		file, err = unix.Openat(fd, filepath.Base(path), flags, 0)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(file), path)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	switch {
	case st.Uid == u.UID:
		return nil
	case !fi.Mode().IsRegular() || st.Nlink != 1:
		return errors.New("it is not a plain file with one name")
	case !made && !alone:
		return fmt.Errorf("it belongs to uid %d and is in a directory that users other than root can change", st.Uid)
	}
	return f.Chown(int(u.UID), int(u.GID))
}

// asOwnerOf runs f in a state directory with its owner's rights when root calls: root creates no file there that the controller could not
// read, and follows no link that the controller has put there.
func asOwnerOf(dir string, f func() error) error {
	fi, err := os.Stat(dir)
	if os.Geteuid() != 0 || err != nil {
		return f()
	}
	st := fi.Sys().(*syscall.Stat_t)
	if st.Uid == 0 {
		return f()
	}
	u, ok := passwd.User(strconv.FormatUint(uint64(st.Uid), 10))
	if !ok {
		u = passwd.Account{UID: st.Uid, GID: st.Gid}
	}
	return actAs(u, f)
}

// actAs runs f with a user's rights, and then restores root's.
func actAs(u passwd.Account, f func() error) error {
	own, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups([]int{int(u.GID)}), syscall.Setresgid(-1, int(u.GID), -1),
		syscall.Setresuid(-1, int(u.UID), -1)); err != nil {
		return fmt.Errorf("cannot act as uid %d: %w", u.UID, err)
	}
	defer func() {
		if err := errors.Join(syscall.Setresuid(-1, 0, -1), syscall.Setresgid(-1, 0, -1), syscall.Setgroups(own)); err != nil {
			panic(err) // the process must not continue with mixed rights
		}
	}()
	return f()
}
