package scontrol

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Commands of scontrol that Sluice does not need or does not have yet. Each returns an error that names it, with Slurm's message
// where scripts may check for that, and the alternative.

func (c *control) token([]string) int {
	return c.fail("Error fetching token", "Sluice uses no authentication tokens: the kernel identifies the callers of the controller's "+
		"socket")
}

func (c *control) takeover(args []string) int {
	if len(args) > 1 {
		return c.fail("takeover: too many arguments")
	}
	if len(args) == 1 && args[0] != "0" {
		return c.fail("takeover: invalid backup controller index ("+format.Escape(args[0])+")", "there is one controller")
	}
	return c.fail("slurm_takeover error: Requested operation is presently disabled",
		"there is only one controller; start it on a host that has its StateSaveLocation")
}

func (c *control) schedLogLevel(args []string) int {
	if !slices.Contains([]string{"0", "1", "disable", "enable"}, strings.ToLower(args[0])) {
		return c.fail("invalid schedlog level: " + format.Escape(args[0]))
	}
	return c.fail("slurm_set_schedlog_level error: Requested operation is presently disabled",
		"use sdiag for the scheduler's counters, sluice explain JOB for its reasons")
}

func (c *control) otherCluster(args []string) int {
	if err := c.env.CheckClusters(args[0]); err != nil {
		return c.env.Refuse(err)
	}
	return 0
}

// writeConfig is scontrol write config [FILE]: the configuration in effect, as a slurm.conf.
func (c *control) writeConfig(args []string) int {
	conn, err := c.dial()
	if err != nil {
		return c.callFailed("slurm_load_ctl_conf error", err)
	}
	ctx := context.Background()
	reply, err := conn.Config(ctx, &msg.ConfigRequest{})
	if err != nil {
		return c.callFailed("slurm_load_ctl_conf error", err)
	}
	parts, err := conn.Partitions(ctx, &msg.PartitionsRequest{})
	if err != nil {
		return c.callFailed("slurm_load_partitions error", err)
	}
	var nodes []*msg.NodeRecord
	fc := view.Context(c.env, reply.GetNowNs())
	if err := view.EachNode(ctx, conn, &msg.NodesRequest{}, fc, func(n *msg.NodeRecord) { nodes = append(nodes, n) }); err != nil {
		return c.callFailed("slurm_load_node error", err)
	}
	b := format.AppendConfig(nil, fc, reply.GetPairs(), nodes, parts.GetPartitions())
	file := configFile(c.env, args, reply.GetPairs())
	if file != "-" {
		file += "." + fc.Now.Format(timespec.Layout)
	}
	if file == "-" {
		_, err = c.env.Stdout.Write(b)
	} else if err = os.WriteFile(file, b, 0o644); err == nil {
		fmt.Fprintf(c.env.Stdout, "Slurm config saved to %s\n", file)
	}
	if err != nil {
		return c.fail(fmt.Sprintf("Could not create file %s: %s", file, command.SystemText(err)))
	}
	return 0
}

// configFile returns the file for the configuration, before the time is appended: the given one, SLURM_CONF_OUT, or that beside the
// original.
func configFile(env *command.Env, args []string, pairs []*msg.KeyValue) string {
	if len(args) > 0 {
		return args[0]
	}
	if out := env.Getenv("SLURM_CONF_OUT"); out != "" {
		return out
	}
	for _, p := range pairs {
		if p.GetKey() == "SLURM_CONF" {
			return p.GetValue()
		}
	}
	return "slurm.conf"
}
