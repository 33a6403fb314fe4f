package conf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/container"
)

// OCI is oci.conf: how to run the containers of --container. Without the file the option is only shown, as in Slurm.
type OCI struct {
	File string

	ContainerPath, MountSpoolDir                                                      string // patterns of paths
	RunTimeCreate, RunTimeDelete, RunTimeKill, RunTimeQuery, RunTimeRun, RunTimeStart string // patterns of commands
	EnvExclude, RunTimeEnvExclude                                                     string // extended regular expressions
	CreateEnvFile                                                                     string // null, newline, or empty
	DisableHooks                                                                      []string
	DisableCleanup, IgnoreFileConfigJSON                                              bool
}

// hookTypes are those of the OCI runtime specification.
var hookTypes = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

func ociCommand(field func(*OCI) *string, letters string) func(*OCI, string) error {
	return func(o *OCI, v string) error {
		*field(o) = v
		return container.CheckPattern(v, letters)
	}
}

func ociPath(field func(*OCI) *string) func(*OCI, string) error {
	return func(o *OCI, v string) error {
		if !filepath.IsAbs(v) {
			return fmt.Errorf("%.100q is not an absolute path", v)
		}
		*field(o) = filepath.Clean(v)
		return container.CheckPattern(v, container.InPath)
	}
}

func ociText(field func(*OCI) *string) func(*OCI, string) error {
	return func(o *OCI, v string) error {
		*field(o) = v
		return nil
	}
}

const (
	whyNoScrun  = "there is no scrun"
	whyNoLevels = "the part of Sluice that runs containers writes no log of its own"
)

var ociKeys = recordKeys(func() []recordKey[OCI] {
	return []recordKey[OCI]{
		{name: "ContainerPath", set: ociPath(func(o *OCI) *string { return &o.ContainerPath })},
		{name: "CreateEnvFile", set: func(o *OCI, v string) (err error) {
			v, err = oneOf(v, "null", "newline", "disabled", "true", "false")
			o.CreateEnvFile = map[string]string{"true": "null", "null": "null", "newline": "newline"}[v]
			return err
		}},
		{name: "DebugFlags", why: whyNoLevels},
		{name: "DisableCleanup", set: func(o *OCI, v string) error { return readBool(&o.DisableCleanup, v) }},
		{name: "DisableHooks", set: func(o *OCI, v string) error {
			o.DisableHooks = nil
			for name := range strings.SplitSeq(v, ",") {
				i := slices.IndexFunc(hookTypes, func(h string) bool { return strings.EqualFold(h, strings.TrimSpace(name)) })
				if i < 0 {
					return fmt.Errorf("unknown hook type %.40q; types: %s", name, strings.Join(hookTypes, ", "))
				}
				o.DisableHooks = append(o.DisableHooks, hookTypes[i])
			}
			return nil
		}},
		{name: "EnvExclude", set: ociText(func(o *OCI) *string { return &o.EnvExclude })},
		{name: "FileDebug", why: whyNoLevels},
		{name: "IgnoreFileConfigJson", set: func(o *OCI, v string) error { return readBool(&o.IgnoreFileConfigJSON, v) }},
		{name: "MountSpoolDir", set: ociPath(func(o *OCI) *string { return &o.MountSpoolDir })},
		{name: "RunTimeCreate", set: ociCommand(func(o *OCI) *string { return &o.RunTimeCreate }, container.InRun)},
		{name: "RunTimeDelete", set: ociCommand(func(o *OCI) *string { return &o.RunTimeDelete }, container.InEnd)},
		{name: "RunTimeEnvExclude", set: ociText(func(o *OCI) *string { return &o.RunTimeEnvExclude })},
		{name: "RunTimeKill", set: ociCommand(func(o *OCI) *string { return &o.RunTimeKill }, container.InEnd)},
		{name: "RunTimeQuery", set: ociCommand(func(o *OCI) *string { return &o.RunTimeQuery }, container.InRun)},
		{name: "RunTimeRun", set: ociCommand(func(o *OCI) *string { return &o.RunTimeRun }, container.InRun)},
		{name: "RunTimeStart", set: ociCommand(func(o *OCI) *string { return &o.RunTimeStart }, container.InRun)},
		{name: "SrunArgs", why: whyNoScrun},
		{name: "SrunPath", why: whyNoScrun},
		{name: "StdIODebug", why: whyNoLevels},
		{name: "SyslogDebug", why: whyNoLevels},
	}
})

// readOCI reads oci.conf, if there is one.
func (l *loader) readOCI() {
	o := &OCI{}
	o.File = l.optional("oci.conf", func(pairs []pair) { readRecord(l, "oci.conf", ociKeys(), pairs, o) })
	if o.File == "" {
		return
	}
	l.c.OCI = o
	at := place{file: o.File}
	switch {
	case o.RunTimeRun != "":
	case o.RunTimeCreate == "" && o.RunTimeStart == "":
		l.fault(at, `write for instance RunTimeRun="crun run --bundle %b %n.%u.%j.%s.%t", or remove the file`,
			"oci.conf has neither RunTimeRun nor RunTimeCreate and RunTimeStart: no container can be run")
	case o.RunTimeCreate == "" || o.RunTimeStart == "" || o.RunTimeQuery == "":
		l.fault(at, "add the others, or RunTimeRun, which needs none of them",
			"oci.conf: RunTimeCreate, RunTimeStart and RunTimeQuery belong together")
	}
	if o.IgnoreFileConfigJSON && o.MountSpoolDir != "" {
		l.warn(at, "remove it", "MountSpoolDir has no effect with IgnoreFileConfigJson, because the mount would be part of config.json")
	}
}

// pairs returns keys and values, for Diff.
func (o *OCI) pairs() (out []Pair) {
	if o == nil {
		return nil
	}
	yes := map[bool]string{true: "yes", false: "no"}
	return []Pair{{"ContainerPath", o.ContainerPath}, {"CreateEnvFile", o.CreateEnvFile}, {"DisableCleanup", yes[o.DisableCleanup]},
		{"DisableHooks", strings.Join(o.DisableHooks, ",")}, {"EnvExclude", o.EnvExclude},
		{"IgnoreFileConfigJson", yes[o.IgnoreFileConfigJSON]}, {"MountSpoolDir", o.MountSpoolDir}, {"RunTimeCreate", o.RunTimeCreate},
		{"RunTimeDelete", o.RunTimeDelete}, {"RunTimeEnvExclude", o.RunTimeEnvExclude}, {"RunTimeKill", o.RunTimeKill},
		{"RunTimeQuery", o.RunTimeQuery}, {"RunTimeRun", o.RunTimeRun}, {"RunTimeStart", o.RunTimeStart}}
}
