package ctld

import (
	"path/filepath"
	"strconv"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// gresLines returns the lines of gres.conf for a node.
func gresLines(c *conf.Config, node string) []*pb.GresConf {
	var out []*pb.GresConf
	for _, g := range c.GresOf(node) {
		line := &pb.GresConf{Autodetect: g.AutoDetect, Name: g.Name, Type: g.Type, Files: g.Files, MultipleFiles: g.Multiple,
			Count: g.Count,
			Flags: g.Flags, Place: filepath.Base(g.File) + ":" + strconv.Itoa(g.Line)}
		var cores state.Cores
		for _, k := range g.Cores {
			one, _ := state.ParseCores(strconv.Itoa(k)) // cannot fail: conf has checked the range
			cores = cores.With(one)
		}
		line.Cores = cores.String()
		for _, l := range g.Links {
			line.Links = append(line.Links, int32(l))
		}
		out = append(out, line)
	}
	return out
}

// gresConfig returns a node's part of gres.conf and SlurmdParameters.
func gresConfig(c *conf.Config, node string) state.GresConfig {
	return state.GresConfig{Lines: gresLines(c, node), DynamicMIG: c.DynamicMIG(node)}
}

// gpuPolicy returns the rules for the GPUs of a node.
func gpuPolicy(c *conf.Config, node string) *pb.GpuPolicy {
	return &pb.GpuPolicy{Uuids: c.GPU.UUIDs, SampleS: c.GPU.SampleS, IgnoreXids: c.GPU.IgnoreXIDs, RecoverS: c.GPU.RecoverS,
		IgnoreForeign: c.GPU.IgnoreForeign,
		DynamicMig:    c.DynamicMIG(node), JobMapDir: c.GPU.JobMap, StatDir: c.GPU.Stat}
}
