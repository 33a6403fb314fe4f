package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/opt"
)

// clusterName is the name in slurm.conf, or "" when there is none to be found.
func (e *Env) clusterName() string {
	name, err := client.ClusterName(e.Getenv)
	if err != nil {
		return ""
	}
	return name
}

// checkClusters accepts what -M may say where there is one cluster: its name, or "all".
func (e *Env) checkClusters(list string) error {
	if list == "" {
		return nil
	}
	own := e.clusterName()
	for _, name := range strings.Split(list, ",") {
		if !strings.EqualFold(name, own) && !strings.EqualFold(name, "all") {
			return &opt.ValueError{Lines: []string{fmt.Sprintf("No cluster '%s' known by database.", name),
				fmt.Sprintf("'%s' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.", name)},
				Exit: 1, Hint: fmt.Sprintf("this cluster is %q", own)}
		}
	}
	return nil
}
