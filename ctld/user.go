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

// # Which rights the controller has
//
// Started as root, it makes what only root can make (the two listeners, a log in a root-owned directory, the first state directory), gives
// away what belongs to SlurmUser, and then becomes SlurmUser for good, with the groups of that user and without a capability. Nothing
// later needs more: programs, mail and job_submit.lua run as SlurmUser anyway. With SlurmUser=root, the default, there is nothing to drop.
//
// Root follows no path here that SlurmUser could change. The state directory is given away once, while it is still root's; a log is made,
// or given away, in a root-owned directory (giveLog), and otherwise opened as SlurmUser. The socket is made with SlurmUser's rights where
// SlurmUser could change its folder.

// listeners are opened first: SlurmctldPort may be below 1024, and the socket in a root-owned directory.
type listeners struct {
	local, nodes net.Listener
	metrics      net.Listener // nil: they are not served
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

// listenLocal opens the socket of commands: as root in a folder that only root can change, else, where root could be led elsewhere, with
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

// onlyRootChanges reports whether nobody but root can change where a path leads, as far as there is something.
func onlyRootChanges(path string) bool {
	path, err := filepath.Abs(path)
	for err == nil && path != "/" {
		path = filepath.Dir(path)
		if _, err = trusted.Path(path); err == nil {
			fi, err := os.Stat(path) // one with the sticky bit lets others put something in
			return err == nil && fi.Mode().Perm()&0o002 == 0
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		err = nil
	}
	return err == nil
}

// becomeSlurmUser gives up root's rights, when they are there and slurm.conf names another user.
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
	if f, err := os.Open(d.opts.Conf); err != nil { // it is read again by scontrol reconfigure
		return fmt.Errorf("SlurmUser must be able to read slurm.conf: %w", err)
	} else {
		_ = f.Close()
	}
	d.log.Info("running as SlurmUser", "user", u.Name, "uid", u.UID)
	return nil
}

// become changes all user and group ids of all threads: there is no way back, and no capability is left.
func become(u passwd.Account) error {
	var gids []int
	for _, g := range passwd.Groups(u) {
		gids = append(gids, int(g))
	}
	gid, uid := int(u.GID), int(u.UID)
	return errors.Join(syscall.Setgroups(gids), syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid))
}

// giveState hands a root-owned state directory, with all that is in it, to the user: one that an earlier controller has made as root. Once
// it is the user's, root looks at nothing in it again.
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
		return nil // an error of opening it says the rest
	}
	if _, err := trusted.Path(dir); err != nil {
		// An empty one, which earlier versions left in a folder of SlurmUser's, can go: its owner removes it.
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
	return errors.Join(err, root.Lchown(".", int(u.UID), int(u.GID))) // last: until then the contents are nobody else's
}

// giveLog has a log that SlurmUser can append to, in folders where only SlurmUser's own rights would not be enough; where that cannot be
// done safely it says what the administrator can do. A log that cannot be opened later is said then.
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

// giveLog makes a log, and gives away one of root's, in a folder that nobody but root can change. In a root-owned directory that a group
// can write to (/var/log is root:syslog 0775 in Ubuntu) it gives away what it has just made itself and nothing else: whatever lies there
// already, members of the group may have put there under this name.
func giveLog(path string, mode os.FileMode, u passwd.Account) error {
	dir := filepath.Dir(path)
	alone := true
	if _, err := trusted.Path(dir); err != nil {
		fi, serr := os.Stat(dir)
		_, perr := trusted.Path(filepath.Dir(dir))
		if errors.Join(serr, perr) != nil || fi.Sys().(*syscall.Stat_t).Uid != 0 || fi.Mode().Perm()&0o002 != 0 {
			return nil // SlurmUser's folder, most likely
		}
		alone = false
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // nobody but root can put another in its place
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

// asOwnerOf does something in a state directory with its owner's rights when root calls: root makes no file there that the controller
// could not read, and follows no link that it has put there.
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

// actAs does something with a user's rights, and takes root's back.
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
			panic(err) // with rights of one and of the other nothing must go on
		}
	}()
	return f()
}
