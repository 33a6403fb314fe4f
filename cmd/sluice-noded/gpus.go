package main

import (
	"path/filepath"

	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/gpu/nvml"
	"github.com/sluice-hpc/sluice/noded/hw"
	"github.com/urfave/cli/v2"
)

func checkGPUs(c *cli.Context) error {
	_, err := gpu.ParseSpec(c.Args().First())
	return err
}

// gpus finds the driver of this machine's GPUs, or simulates GPUs. A machine without a driver has none, which is not an error.
func gpus(spec string, o *noded.Options) error {
	if spec == "" {
		src, err := nvml.Open()
		if err != nil {
			o.NoGPUs = err.Error()
			return nil
		}
		o.GPUs = src
		return nil
	}
	items, err := gpu.ParseSpec(spec)
	if err != nil || len(items) == 0 {
		return err
	}
	inv, err := hw.Linux{}.Inventory()
	if err != nil {
		return err
	}
	fake, err := gpu.NewFake(items, gpu.FakeOptions{Dir: filepath.Join(o.Spool, "gpus"), Topology: inv.Topology})
	if err != nil {
		return err
	}
	if why := fake.Plain(); why != nil {
		o.Log.Warn("jobs can open all simulated GPUs: they are plain files, because only root can create devices", "err", why)
	}
	o.GPUs = fake
	return nil
}
