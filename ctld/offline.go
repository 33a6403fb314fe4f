package ctld

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/journal"
)

// Issue writes what the daemon of a host needs to show who it is (ca.crt, ROLE.crt, ROLE.key) into a folder; role is one of package mtls.
// The cluster's authority is made when there is none and found says so; otherwise that is an error, since a mistyped folder has none.
// signed is false when the folder already held a good certificate for the host.
func Issue(stateDir, host, role, out string, found bool) (signed bool, err error) {
	dir := filepath.Join(stateDir, "tls")
	if found {
		err = asOwnerOf(stateDir, func() error { return ca.Ensure(dir) })
	} else {
		err = ca.Check(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false,
			fmt.Errorf("cannot issue a certificate: there is no cluster authority in %s; --state is the state folder of the controller, "+
				"which creates its authority at its first start (--new-authority makes one before that)", dir)
	}
	if err != nil {
		return false, err
	}
	return ca.Provide(dir, out, host, role, []string{host})
}

// Restore replaces a damaged database by the newest good copy, or by the backup named. It answers in words.
func Restore(stateDir, from string) (string, error) {
	var r journal.Restored
	err := asOwnerOf(stateDir, func() (err error) {
		r, err = journal.Restore(stateDir, from)
		return err
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("restored from %s (written %s, commit %d); new job ids begin above %d", r.From,
		r.Written.Format("2006-01-02T15:04:05"), r.Seq, r.IDFloor)
	if r.Replayed > 0 {
		text += fmt.Sprintf("\nthe last %d commits were added from the redo log", r.Replayed)
	}
	if r.BadKeptAs != "" {
		text += "\nthe damaged database is kept as " + r.BadKeptAs
	}
	for _, n := range r.Notes {
		text += "\nnote: " + n
	}
	return text, nil
}
