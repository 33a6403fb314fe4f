package cgroup

import (
	"fmt"
	"os"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// BenchmarkDevices is what a group with one GPU of eight costs beside one without rules.
func BenchmarkDevices(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: makes cgroups")
	}
	for _, plugin := range []string{PluginAuto, PluginV1} {
		r, err := Open(fmt.Sprintf("sluice-test/bench-%d", os.Getpid()), plugin)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(r.Tidy)
		for what, rules := range map[string][]*pb.DeviceRule{"none": nil,
			"gpu": {deny(195, -1), deny(508, -1), allow(195, 3), allow(195, 254), allow(195, 255)}} {
			b.Run(r.Layout().String()+"/"+what, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					g, err := r.Create(fmt.Sprintf("job_%d.1", i), &pb.Limits{Devices: rules})
					if err != nil {
						b.Fatal(err)
					}
					if err := g.Remove(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
