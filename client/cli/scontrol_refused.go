package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Commands of scontrol that Sluice has no use for, or not yet. Each is refused by its name, with Slurm's words where a script may look
// for them, and with what to use in its place.

func (c *control) token([]string) int {
	return c.fail("Error fetching token", "Sluice has no tokens: the kernel says who is at the other end of the controller's socket")
}

func (c *control) takeover(args []string) int {
	if len(args) > 1 {
		return c.fail("takeover: too many arguments")
	}
	if len(args) == 1 && args[0] != "0" {
		return c.fail("takeover: invalid backup controller index ("+format.Escape(args[0])+")", "there is one controller")
	}
	return c.fail("slurm_takeover error: Requested operation is presently disabled", "there is one controller; start it again where its StateSaveLocation is")
}

func (c *control) schedLogLevel(args []string) int {
	if !slices.Contains([]string{"0", "1", "disable", "enable"}, strings.ToLower(args[0])) {
		return c.fail("invalid schedlog level: " + format.Escape(args[0]))
	}
	return c.fail("slurm_set_schedlog_level error: Requested operation is presently disabled", "sdiag has the scheduler's counters, sluice explain JOB its reasons")
}

func (c *control) otherCluster(args []string) int {
	if err := c.env.checkClusters(args[0]); err != nil {
		return c.env.refuse(err)
	}
	return 0
}

// assocMgr is scontrol show assoc_mgr: until there are accounts, one, which is root's and everybody's, without limits.
func (s *show) assocMgr(string) int {
	return s.out([]byte("Current Association Manager state\n\nUser Records\n\nUserName=root(0) DefAccount=root DefWckey= AdminLevel=Administrator\n\n" +
		"Association Records\n\nClusterName=" + format.Escape(s.env.clusterName()) + " Account=root UserName= Partition= Priority=0 ID=1\n" +
		"    SharesRaw/Norm/Level/Factor=1/0.00/1/0.00\n    UsageRaw/Norm/Efctv=0.00/1.00/1.00\n    ParentAccount= Lft=1 DefAssoc=No\n" +
		"    GrpJobs=N(0) GrpJobsAccrue=N(0)\n    GrpSubmitJobs=N(0) GrpWall=N(0.00)\n    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=\n\n" +
		"QOS Records\n\nQOS=normal(1)\n    UsageRaw=0.000000\n    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00)\n"))
}

// writeConfig is scontrol write config [FILE]: the configuration in force, as a slurm.conf.
func (c *control) writeConfig(args []string) int {
	conn, err := c.dial()
	if err != nil {
		return c.callFailed("slurm_load_ctl_conf error", err)
	}
	ctx := context.Background()
	reply, err := conn.Config(ctx, &pb.ConfigRequest{})
	if err != nil {
		return c.callFailed("slurm_load_ctl_conf error", err)
	}
	parts, err := conn.Partitions(ctx, &pb.PartitionsRequest{})
	if err != nil {
		return c.callFailed("slurm_load_partitions error", err)
	}
	var nodes []*pb.NodeRecord
	fc := c.env.formatContext(reply.GetNowNs())
	if err := eachNode(ctx, conn, &pb.NodesRequest{}, fc, func(n *pb.NodeRecord) { nodes = append(nodes, n) }); err != nil {
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
		return c.fail(fmt.Sprintf("slurm_write_ctl_conf error: %v", err))
	}
	return 0
}

// configFile is where the configuration is written, before the moment that is added: the file that was named, SLURM_CONF_OUT, or
// beside the original.
func configFile(env *Env, args []string, pairs []*pb.KeyValue) string {
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
