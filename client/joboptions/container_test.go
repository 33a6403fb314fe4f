package joboptions

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// containerOf reads options, and variables, of one command as it does.
func containerOf(cmd Commands, variables map[string]string, args ...string) (*msg.ContainerSpec, error) {
	r := New(cmd, "/home/u/dir", time.Unix(0, 0), os.ReadFile)
	if err := r.FromEnvironment(func(name string) (string, bool) { v, ok := variables[name]; return v, ok }); err != nil {
		return nil, err
	}
	hits, _, err := opt.Scan(Names(cmd), args, false)
	if err != nil {
		return nil, err
	}
	for _, h := range hits {
		if err := r.Apply(CommandLine, h); err != nil {
			return nil, err
		}
	}
	err = r.Finish()
	return r.Spec.RunIn, err
}

func TestContainerOptions(t *testing.T) {
	args := []string{"--container-image=nvcr.io#nvidia/pytorch:24.01-py3", "--container-mounts=/data:/data:ro,./:/w",
		"--container-mounts=/more", "--container-workdir=w", "--container-name=torch", "--container-mount-home", "--container-remap-root",
		"--container-readonly", "--container-env=A,B", "--no-container-entrypoint"}
	want := &msg.ContainerSpec{Image: "nvcr.io#nvidia/pytorch:24.01-py3",
		Mounts:  []string{"/data:/data:ro", "/home/u/dir:/w", "/more:/more"},
		Workdir: "/w", Name: "torch", MountHome: true, RemapRoot: true, ReadOnly: true, Env: []string{"A", "B"}}
	for _, cmd := range []Commands{Sbatch, Salloc, Srun} {
		got, err := containerOf(cmd, nil, args...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v", cmd, got, err)
			continue
		}
		// What is told to another command is the same.
		if again, err := containerOf(Srun, nil, ContainerOptions(got)...); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%q: %+v, %v", ContainerOptions(got), again, err)
		}
	}
	// The variables of Pyxis, which options outweigh.
	got, err := containerOf(Srun, map[string]string{"PYXIS_CONTAINER_IMAGE": "debian", "PYXIS_CONTAINER_MOUNTS": "/a:/b",
		"PYXIS_CONTAINER_READONLY": "1", "PYXIS_CONTAINER_MOUNT_HOME": "0"}, "--container-mounts=/c:/d", "--container-writable")
	if err != nil || !reflect.DeepEqual(got, &msg.ContainerSpec{Image: "debian", Mounts: []string{"/c:/d"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := containerOf(Srun, nil, "--no-container-mount-home"); got != nil || err != nil {
		t.Errorf("what is so anyway makes a container: %+v, %v", got, err)
	}
}

func TestContainerOptionsRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--container-image=":                           "--container-image: argument required",
		"--container-image=/data/x.sqsh":               "--container-image: squashfs images",
		"--container-image=me@nvcr.io#x":               "--container-image: a user (me@)",
		"--container-mounts=/tmp:":                     "--container-mounts: /tmp:: expected SOURCE:TARGET",
		"--container-mounts=/tmp:/mnt":                 "container options require a container",
		"--container-workdir=":                         "--container-workdir: argument required",
		"--container-name=/tmp/foo":                    "--container-name: names consist of letters",
		"--container-env=,":                            "--container-env: \"\" is not a variable name",
		"--container-entrypoint":                       "--container-entrypoint is not supported",
		"--container-save=/x --container-image=a":      "--container-save is not supported",
		"--container-remap-root --container-workdir=/": "container options require a container",
	} {
		_, err := containerOf(Srun, nil, strings.Fields(args)...)
		var v *opt.ValueError
		if !errors.As(err, &v) || !strings.HasPrefix(v.Error(), want) || v.Exit != 1 {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
