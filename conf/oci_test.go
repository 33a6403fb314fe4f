package conf

import (
	"reflect"
	"strings"
	"testing"
)

func TestOCI(t *testing.T) {
	f := files{"slurm.conf": twoNodes}
	if c, err := Load("/slurm.conf", f.options()); err != nil || c.OCI != nil {
		t.Errorf("without oci.conf: %+v, %v", c.OCI, err)
	}
	before, _ := Load("/slurm.conf", f.options())
	f["oci.conf"] = `ContainerPath=/var/tmp/%U/%j.%s
CreateEnvFile=true # as null
EnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="
DisableHooks=prestart,PostStop
IgnoreFileConfigJson=no
RunTimeQuery="runc --rootless=true --root=/run/user/%U/ state %n.%u.%j.%s.%t"
runtimerun="crun run --bundle %b %n.%u.%j.%s.%t"
RunTimeDelete="kill -s SIGKILL %p"
SrunPath=/usr/bin/srun
`
	c, err := Load("/slurm.conf", f.options())
	if err != nil {
		t.Fatal(err)
	}
	want := &OCI{File: "/oci.conf", ContainerPath: "/var/tmp/%U/%j.%s", CreateEnvFile: "null",
		EnvExclude: "^(SLURM_CONF|SLURM_CONF_SERVER)=", DisableHooks: []string{"prestart", "poststop"},
		RunTimeQuery: "runc --rootless=true --root=/run/user/%U/ state %n.%u.%j.%s.%t", RunTimeRun: "crun run --bundle %b %n.%u.%j.%s.%t",
		RunTimeDelete: "kill -s SIGKILL %p"}
	if !reflect.DeepEqual(c.OCI, want) {
		t.Errorf("%+v, want %+v", c.OCI, want)
	}
	if len(c.Ignored) != 1 || c.Ignored[0].Key != "oci.conf SrunPath" {
		t.Errorf("without effect: %v", c.Ignored)
	}
	if c.Sum == before.Sum {
		t.Error("oci.conf does not count for the sum")
	}
	if d := strings.Join(Diff(before, c), "\n"); !strings.Contains(d, "oci.conf RunTimeRun: (null) -> crun run") {
		t.Errorf("what differs: %s", d)
	}
}

func TestBadOCI(t *testing.T) {
	const run = "RunTimeRun=\"crun run %j\"\n"
	for text, want := range map[string]string{
		"":                            "oci.conf has neither RunTimeRun nor RunTimeCreate and RunTimeStart",
		"RunTimeCreate=x\n":           "RunTimeCreate, RunTimeStart and RunTimeQuery belong together",
		"RunTimeRun=\"crun %x\"\n":    "/oci.conf:1: RunTimeRun: unknown pattern %x",
		"RunTimeRun=\"crun %p\"\n":    "RunTimeRun: unknown pattern %p",
		run + "ContainerPath=x\n":     "/oci.conf:2: ContainerPath: \"x\" is not an absolute path",
		run + "ContainerPath=/%t\n":   "ContainerPath: unknown pattern %t",
		run + "DisableHooks=x\n":      "DisableHooks: unknown hook type \"x\"",
		run + "CreateEnvFile=yes\n":   "CreateEnvFile: \"yes\" is not one of null, newline, disabled",
		run + "DisableCleanup=ja\n":   "DisableCleanup: ",
		run + "RunTimeRunn=\"y\"\n":   "unknown key RunTimeRunn",
		run + "OCIRunTimeRun=\"y\"\n": "unknown key OCIRunTimeRun",
	} {
		_, err := Load("/slurm.conf", files{"slurm.conf": twoNodes, "oci.conf": text}.options())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
