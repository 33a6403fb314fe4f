package container

import (
	"reflect"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestEnvironment: the image counts more than the job, but for what describes the job, and what --container-env names.
func TestEnvironment(t *testing.T) {
	job := []string{"PATH=/usr/bin", "A=job", "KEPT=job", "HOME=/home/u", "SLURM_JOB_ID=1", "CUDA_VISIBLE_DEVICES=3", "PMI_FD=5", "PWD=/x",
		"LD_LIBRARY_PATH=/job", "A=second"}
	image := []string{"PATH=/image", "A=image", "KEPT=image", "NEW=image", "HOME=/root", "SLURM_JOB_ID=9", "CUDA_VISIBLE_DEVICES=all",
		"PMI_FD=0", "PMIX=image", "container=oci", "broken"}
	got := environment(job, image, []string{"KEPT"}, "/work")
	want := []string{"PATH=/image", "A=image", "KEPT=job", "HOME=/home/u", "SLURM_JOB_ID=1", "CUDA_VISIBLE_DEVICES=3",
		"PMI_FD=5", "PWD=/work", "LD_LIBRARY_PATH=/job", "NEW=image", "PMIX=image"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What nvidia-ctk cdi generate writes, cut down, as YAML and as JSON.
const (
	cdiYAML = `cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: all
containerEdits:
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-ctk
`
	cdiJSON = `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[
  {"name":"1"},
  {
    "name": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd",
    "containerEdits": {}}]}`
)

func TestDevices(t *testing.T) {
	gpu := &pb.ContainerDevice{Id: "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", Index: 0, Files: []string{"/dev/nvidia0"}}
	second := &pb.ContainerDevice{Id: "GPU-99999999-d33d-2b2c-524d-9e3d8d2b8a77", Index: 1, Files: []string{"/dev/nvidia1"}}
	mig := &pb.ContainerDevice{Id: "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", Index: 0, Files: []string{"/dev/nvidia0",
		"/dev/nvidia-caps/nvidia-cap12"}}
	other := &pb.ContainerDevice{Id: "/dev/accel0", Files: []string{"/dev/accel0"}}
	for name, c := range map[string]struct {
		list  []*pb.ContainerDevice
		specs string
		want  string
		note  bool
	}{
		"none":             {nil, cdiYAML, "", false},
		"by UUID":          {[]*pb.ContainerDevice{gpu}, cdiYAML, "--device=nvidia.com/gpu=" + gpu.Id, false},
		"by index":         {[]*pb.ContainerDevice{second}, cdiJSON, "--device=nvidia.com/gpu=1", false},
		"MIG":              {[]*pb.ContainerDevice{mig}, cdiJSON, "--device=nvidia.com/gpu=" + mig.Id, false},
		"MIG is no index":  {[]*pb.ContainerDevice{mig}, cdiYAML, "--device=/dev/nvidia0 --device=/dev/nvidia-caps/nvidia-cap12", true},
		"no specification": {[]*pb.ContainerDevice{gpu, second}, "", "--device=/dev/nvidia0 --device=/dev/nvidia1", true},
		"not in it":        {[]*pb.ContainerDevice{second}, cdiYAML, "--device=/dev/nvidia1", true},
		"other devices":    {[]*pb.ContainerDevice{other}, cdiYAML, "--device=/dev/accel0", false},
		"no file of /dev":  {[]*pb.ContainerDevice{{Id: "GPU-1", Files: []string{"/tmp/simulated"}}}, "", "", true},
		"one of all, others": {[]*pb.ContainerDevice{gpu, other}, cdiYAML,
			"--device=nvidia.com/gpu=" + gpu.Id + " --device=/dev/accel0", false},
	} {
		args, note := devices(c.list, c.specs)
		if note != "" { // of a machine with a driver
			for _, f := range controls {
				args = without(args, "--device="+f)
			}
		}
		if got := strings.Join(args, " "); got != c.want || (note != "") != c.note {
			t.Errorf("%s: %q (%s), want %q", name, got, note, c.want)
		}
	}
}

func without(list []string, word string) (out []string) {
	for _, s := range list {
		if s != word {
			out = append(out, s)
		}
	}
	return out
}

func TestReadInfo(t *testing.T) {
	for text, want := range map[string]*store{
		`{"host":{"idMappings":{"uidmap":[{"container_id":0,"host_id":999,"size":1}]}},"store":{"graphDriverName":"overlay","graphOptions":{}}}`: {
			driver: "overlay", options: []string{"overlay.ignore_chown_errors=true"}},
		`{"host":{"idMappings":{"uidmap":[{"size":1},{"size":65536}]}},"store":{"graphDriverName":"overlay","graphOptions":
			{"overlay.mount_program":{"Executable":"/usr/bin/fuse-overlayfs","Package":"x"}}}}`: {
			driver: "overlay", options: []string{"overlay.mount_program=/usr/bin/fuse-overlayfs"}, subordinate: true},
		`{"host":{},"store":{"graphDriverName":"vfs","graphOptions":{"vfs.imagestore":"/shared"}}}`: {
			driver: "vfs", options: []string{"vfs.ignore_chown_errors=true"}},
	} {
		if got, err := readInfo([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if _, err := readInfo([]byte("Error: x")); err == nil {
		t.Error("what is no JSON is read")
	}
}

func TestWithFileLocks(t *testing.T) {
	for in, want := range map[string]string{
		"":         "\n[engine]\nlock_type = \"file\"\n",
		"[engine]": "[engine]\nlock_type = \"file\"\n",
		"[engine]\nlock_type=\"shm\"\nruntime = \"crun\"\n[network]\n": "[engine]\nlock_type = \"file\"\nruntime = \"crun\"\n[network]\n",
		"[containers]\na = 1\n": "[containers]\na = 1\n\n[engine]\nlock_type = \"file\"\n",
		"# [engine]\n":          "# [engine]\n\n[engine]\nlock_type = \"file\"\n",
	} {
		if got := string(withFileLocks([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestLastWords: progress is passed on line by line, and what Podman calls an error is kept for the end.
func TestLastWords(t *testing.T) {
	var shown strings.Builder
	l := &lastWords{to: &shown}
	for _, part := range []string{"Trying to pull x...\nCopy", "ing blob\n\nError: no such", " image\nError: once more\nrest"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if shown.String() != "Trying to pull x...\nCopying blob\n" {
		t.Errorf("shown: %q", shown.String())
	}
	if err := sayWhy(nil, l.text()); err == nil || err.Error() != "no such image; once more" {
		t.Errorf("error: %v", err)
	}
}

func TestEncode(t *testing.T) {
	j := &Job{Step: "/s", User: "/u", Run: "/r", Script: "/script", Node: "n1",
		Spec:    &pb.ContainerSpec{Image: "ubuntu", Mounts: []string{"/a:/b"}, Name: "x", MountHome: true},
		Devices: []*pb.ContainerDevice{{Id: "GPU-1", Index: 2, Files: []string{"/dev/nvidia2"}}}}
	text, err := j.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(text); err != nil || !reflect.DeepEqual(again, j) {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []string{"", "{}", `{"step":"/s"}`} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("%q is taken for a container", bad)
		}
	}
}

func TestExclude(t *testing.T) {
	env := []string{"SLURM_CONF=/x", "SLURM_CONF_SERVER=y", "SLURM_CONFIG=z", "A=SLURM_CONF="}
	got, err := exclude("EnvExclude", "^(SLURM_CONF|SLURM_CONF_SERVER)=", env)
	if want := env[2:]; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got, err := exclude("EnvExclude", "", env); err != nil || !reflect.DeepEqual(got, env) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := exclude("EnvExclude", "(", env); err == nil || !strings.Contains(err.Error(), "EnvExclude of oci.conf: ") {
		t.Errorf("a broken expression: %v", err)
	}
}
