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
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/conf/tcp"
	"github.com/sluice-hpc/sluice/conf/trusted"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"golang.org/x/sys/unix"
)

// # Which rights the controller has
//
// Started as root, it makes what only root can make (the two listeners, a log in a folder of root's, the first state directory), gives
// away what belongs to SlurmUser, and then becomes SlurmUser for good, with the groups of that user and without a capability. Nothing
// later needs more: programs, mail and job_submit.lua run as SlurmUser anyway. With SlurmUser=root, the default, there is nothing to drop.
//
// Root follows no path here that SlurmUser could change. The state directory is given away once, while it is still root's; a log is made,
// or given away, only in a folder that nobody but root can change, and otherwise opened as SlurmUser.

// listeners are opened first: SlurmctldPort may be below 1024, and the socket in a folder of root's.
type listeners struct {
	local, nodes net.Listener
}

func (l *listeners) close() {
	for _, x := range []net.Listener{l.local, l.nodes} {
		if x != nil {
			_ = x.Close()
		}
	}
}

func (d *daemon) listen() (l listeners, err error) {
	if l.nodes, err = tcp.Listen(d.opts.Listen); err != nil {
		return l, fmt.Errorf("cannot listen for nodes on %s (SlurmctldPort): %w", d.opts.Listen, err)
	}
	if l.local, err = rpc.Listen(d.opts.Socket); err != nil {
		l.close()
	}
	return l, err
}

// becomeSlurmUser gives up root's rights, when they are there and slurm.conf names another user.
func (d *daemon) becomeSlurmUser(c *conf.Config) error {
	if !d.opts.Drop || os.Geteuid() != 0 {
		return nil
	}
	u, ok := accounts.User(c.SlurmUser)
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
			giveLog(path, 0o600, u)
		}
	}
	if s := d.jobcompSettings(); s.Path != "" {
		giveLog(s.Path, 0o644, u)
	}
	if err := become(u); err != nil {
		return fmt.Errorf("cannot become SlurmUser=%s: %w", u.Name, err)
	}
	if f, err := os.Open(d.opts.Conf); err != nil { // it is read again by scontrol reconfigure
		return fmt.Errorf("SlurmUser has to be able to read slurm.conf: %w", err)
	} else {
		_ = f.Close()
	}
	d.log.Info("running as SlurmUser", "user", u.Name, "uid", u.UID)
	return nil
}

// become changes all user and group ids of all threads: there is no way back, and no capability is left.
func become(u accounts.Account) error {
	var gids []int
	for _, g := range accounts.Groups(u) {
		gids = append(gids, int(g))
	}
	gid, uid := int(u.GID), int(u.UID)
	return errors.Join(syscall.Setgroups(gids), syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid))
}

// giveState hands a state directory of root's, with all that is in it, to the user: one that an earlier controller has made as root. Once
// it is the user's, root looks at nothing in it again.
func giveState(dir string, u accounts.Account) error {
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
		return fmt.Errorf("%s is a symbolic link, and belongs to uid %d: name the directory itself", dir, owner)
	case owner != 0:
		return nil // an error of opening it says the rest
	}
	if _, err := trusted.Path(dir); err != nil {
		// An empty one, which earlier versions left in a folder of SlurmUser's, can go: its owner removes it.
		if asOwnerOf(filepath.Dir(dir), func() error { return unix.Rmdir(dir) }) == nil {
			return nil
		}
		return fmt.Errorf("somebody else can change it: %w; chown -R it yourself", err)
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

// giveLog makes a log that SlurmUser will append to, or gives it away, where only root can. A log that cannot be opened later is said then.
func giveLog(path string, mode os.FileMode, u accounts.Account) {
	path, err := filepath.Abs(path)
	if _, terr := trusted.Path(filepath.Dir(path)); err != nil || terr != nil {
		return // SlurmUser's folder, most likely
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Sys().(*syscall.Stat_t).Nlink != 1 {
		return
	}
	_ = f.Chown(int(u.UID), int(u.GID))
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
	u, ok := accounts.User(strconv.FormatUint(uint64(st.Uid), 10))
	if !ok {
		u = accounts.Account{UID: st.Uid, GID: st.Gid}
	}
	own, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups([]int{int(u.GID)}), syscall.Setresgid(-1, int(u.GID), -1),
		syscall.Setresuid(-1, int(u.UID), -1)); err != nil {
		return fmt.Errorf("cannot act as the owner of %s: %w", dir, err)
	}
	defer func() {
		if err := errors.Join(syscall.Setresuid(-1, 0, -1), syscall.Setresgid(-1, 0, -1), syscall.Setgroups(own)); err != nil {
			panic(err) // with rights of one and of the other nothing must go on
		}
	}()
	return f()
}
