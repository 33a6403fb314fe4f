package admit

import (
	"github.com/sluice-hpc/sluice/conf/container"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Container refuses containers that no node would accept: commands check this too, but a client need not be one of ours.
func Container(c *pb.ContainerSpec) *pb.Problem {
	if c == nil {
		return nil
	}
	bad := func(option string, err error) *pb.Problem {
		return pb.NewProblem(pb.CodeInvalidSpec, "--container-%s: %v", option, err)
	}
	if c.Image == "" && c.Name == "" {
		return pb.NewProblem(pb.CodeInvalidSpec, "the container has neither an image nor a name")
	}
	if _, err := container.Image(c.Image); c.Image != "" && err != nil {
		return bad("image", err)
	}
	if _, err := container.Name(c.Name); c.Name != "" && err != nil {
		return bad("name", err)
	}
	for _, m := range c.Mounts {
		if _, err := container.Mounts(m, "/"); err != nil {
			return bad("mounts", err)
		}
		if p := badText("a mount", m, false, false, maxName); p != nil {
			return p
		}
	}
	for _, name := range c.Env {
		if _, err := container.Env(name); err != nil {
			return bad("env", err)
		}
	}
	return badText("a working directory", c.Workdir, false, false, maxName)
}
