package joboptions

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/container"
)

// badContainer rejects a value with the message of Pyxis, where these options come from.
func badContainer(option string, why error) error {
	return &opt.ValueError{Lines: []string{fmt.Sprintf("--container-%s: %v", option, why)}, Exit: 1}
}

// containerSpec returns the container of the request, creating it if necessary.
func (r *Request) containerSpec() *msg.ContainerSpec {
	if r.Spec.RunIn == nil {
		r.Spec.RunIn = &msg.ContainerSpec{}
	}
	return r.Spec.RunIn
}

func setContainer(field func(*msg.ContainerSpec) *bool, value bool) func(*Request, string, bool) error {
	return func(r *Request, _ string, _ bool) error {
		*field(r.containerSpec()) = value
		return nil
	}
}

func setContainerImage(r *Request, value string, _ bool) error {
	if _, err := container.Image(value); err != nil {
		return badContainer("image", err)
	}
	r.containerSpec().Image = value
	return nil
}

func setContainerMounts(r *Request, value string, _ bool) error {
	if err := printable("container-mounts", value); err != nil {
		return err
	}
	mounts, err := container.Mounts(value, r.Dir)
	if err != nil {
		return badContainer("mounts", err)
	}
	c := r.containerSpec()
	if r.containerMounts != r.applying { // a higher source replaces the mounts of a lower one
		r.containerMounts, c.Mounts = r.applying, nil
	}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, m.String())
	}
	return nil
}

func setContainerWorkdir(r *Request, value string, _ bool) (err error) {
	if err := printable("container-workdir", value); err != nil {
		return err
	}
	c := r.containerSpec()
	if c.Workdir, err = container.Workdir(value); err != nil {
		return badContainer("workdir", err)
	}
	return nil
}

func setContainerName(r *Request, value string, _ bool) (err error) {
	c := r.containerSpec()
	if c.Name, err = container.Name(value); err != nil {
		return badContainer("name", err)
	}
	return nil
}

func setContainerEnv(r *Request, value string, _ bool) (err error) {
	c := r.containerSpec()
	if c.Env, err = container.Env(value); err != nil {
		return badContainer("env", err)
	}
	return nil
}

// checkContainer rejects container options without a container.
func (r *Request) checkContainer() error {
	c := r.Spec.RunIn
	if c == nil || c.Image != "" || c.Name != "" {
		return nil
	}
	if len(c.Mounts) == 0 && c.Workdir == "" && len(c.Env) == 0 && !c.MountHome && !c.RemapRoot && !c.ReadOnly {
		r.Spec.RunIn = nil // only options that are the default anyway
		return nil
	}
	return &opt.ValueError{Lines: []string{"container options require a container"}, Exit: 1,
		Hint: "add --container-image=IMAGE or --container-name=NAME"}
}

// ContainerOptions returns the options that describe the same container to another of our commands.
func ContainerOptions(c *msg.ContainerSpec) (options []string) {
	say := func(name, value string) {
		if value != "" {
			options = append(options, "--container-"+name+"="+value)
		}
	}
	say("image", c.Image)
	say("mounts", strings.Join(c.Mounts, ","))
	say("workdir", c.Workdir)
	say("name", c.Name)
	say("env", strings.Join(c.Env, ","))
	for name, on := range map[string]bool{"mount-home": c.MountHome, "remap-root": c.RemapRoot, "readonly": c.ReadOnly} {
		if on {
			options = append(options, "--container-"+name)
		}
	}
	return options
}
