package ctld

import (
	"fmt"
	"path/filepath"

	"github.com/sluice-hpc/sluice/conf/mtls"
	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/journal"
)

// Issue writes what a node daemon needs to show who it is (ca.crt, node.crt, node.key) into a folder, making the cluster's
// authority when there is none. signed is false when the folder already held a good certificate for the node.
func Issue(stateDir, node, out string) (signed bool, err error) {
	dir := filepath.Join(stateDir, "tls")
	if err := ca.Ensure(dir); err != nil {
		return false, err
	}
	return ca.Provide(dir, out, node, mtls.RoleNode, []string{node})
}

// Restore replaces a damaged database by the newest good copy, or by the backup named. It answers in words.
func Restore(stateDir, from string) (string, error) {
	r, err := journal.Restore(stateDir, from)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("restored from %s (written %s, commit %d); new job ids begin above %d", r.From, r.Written.Format("2006-01-02T15:04:05"), r.Seq, r.IDFloor)
	if r.BadKeptAs != "" {
		text += "\nthe damaged database is kept as " + r.BadKeptAs
	}
	for _, n := range r.Notes {
		text += "\nnote: " + n
	}
	return text, nil
}
