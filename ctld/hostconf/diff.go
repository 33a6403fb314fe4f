package hostconf

import (
	"bytes"
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Diff describes which programs differ in to. Package conf describes differences in the configuration files.
func Diff(from, to []byte) (out []string) {
	programs := func(bundle []byte) (b *pb.ConfigurationBundle, by map[string]*pb.ConfigurationFile) {
		b, by = &pb.ConfigurationBundle{}, map[string]*pb.ConfigurationFile{}
		if proto.Unmarshal(bundle, b) != nil {
			return &pb.ConfigurationBundle{}, by
		}
		for _, f := range b.Files {
			if f.Mode&0o111 != 0 {
				by[f.Path] = f
			}
		}
		return b, by
	}
	a, was := programs(from)
	b, now := programs(to)
	for _, f := range a.Files {
		if was[f.Path] != nil && now[f.Path] == nil {
			out = append(out, fmt.Sprintf("program %s: no longer distributed to hosts", f.Path))
		}
	}
	for _, f := range b.Files {
		switch old := was[f.Path]; {
		case now[f.Path] == nil:
		case old == nil:
			out = append(out, fmt.Sprintf("program %s: distributed to hosts, %d bytes", f.Path, len(f.Data)))
		case !bytes.Equal(old.Sha256, f.Sha256):
			out = append(out, fmt.Sprintf("program %s: its text has changed, %d bytes", f.Path, len(f.Data)))
		case old.Mode != f.Mode:
			out = append(out, fmt.Sprintf("program %s: its mode has changed from %#o to %#o", f.Path, old.Mode, f.Mode))
		}
	}
	return out
}
