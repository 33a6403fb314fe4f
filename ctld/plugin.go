package ctld

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/jobsubmit"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// PluginCommand is the hidden command of sluice-ctld that job_submit.lua runs in.
const PluginCommand = "job-submit"

// needPlugin loads job_submit.lua, which lies beside slurm.conf, when a configuration needs it for the first time. If it cannot be loaded,
// the configuration is faulty.
func (d *daemon) needPlugin(c *conf.Config) error {
	if c.JobSubmitScript() == "" {
		return nil
	}
	if p := d.plugin.Load(); p != nil {
		p.SetMessageTimeout(c.MessageTimeoutSec)
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(c.JobSubmitScript())
	if err != nil {
		return err
	}
	p := jobsubmit.New(path, []string{self, PluginCommand}, turns.ScriptPlaces, turns.Script, d.log)
	p.SetMessageTimeout(c.MessageTimeoutSec)
	if err := p.Check(); err != nil {
		return err
	}
	d.plugin.Store(p)
	return nil
}

func (d *daemon) closePlugin() {
	if p := d.plugin.Load(); p != nil {
		p.Close()
	}
}

func (d *daemon) submitScript(ctx context.Context, v *state.View, r *pb.SubmitRequest) ([]string, *pb.Problem) {
	if p := d.plugin.Load(); p != nil && d.conf.Load().JobSubmitScript() != "" {
		return p.Submit(ctx, v, r)
	}
	return nil, nil
}

func (d *daemon) modifyScript(ctx context.Context, v *state.View, uid uint32, ids []string, set []*pb.KeyValue) ([]*pb.KeyValue,
	*pb.Problem) {
	if p := d.plugin.Load(); p != nil && d.conf.Load().JobSubmitScript() != "" {
		return p.Modify(ctx, v, uid, ids, set)
	}
	return set, nil
}
