package conf

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// gpuConf loads a small configuration with SlurmdParameters=params.
func gpuConf(t *testing.T, params string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "slurm.conf")
	text := "ClusterName=c\nSlurmctldHost=h\nSlurmdParameters=" + params +
		"\nNodeName=n[1-2],g1\nPartitionName=p Nodes=n[1-2] Default=YES\nPartitionName=gpu Nodes=g1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, Options{})
}

func TestGPURules(t *testing.T) {
	tests := map[string]func(*GPU){
		"config_overrides":                func(*GPU) {},
		"gpu_uuids,gpu_sample=5":          func(g *GPU) { g.UUIDs, g.SampleS = true, 5 },
		"gpu_ignore_xids=13:79":           func(g *GPU) { g.IgnoreXIDs = []uint32{13, 79} },
		"gpu_ignore_xids=":                func(g *GPU) { g.IgnoreXIDs = nil },
		"gpu_recover=60,gpu_idle=30":      func(g *GPU) { g.RecoverS, g.IdleMin = 60, 30 },
		"gpu_foreign=ignore":              func(g *GPU) { g.IgnoreForeign = true },
		"gpu_fault=drain":                 func(g *GPU) { g.FaultDrains = true },
		"gpu_job_map=/run/x,gpu_stat=off": func(g *GPU) { g.JobMap, g.Stat = "/run/x", "off" },
		"gpu_idle_action=cancel":          func(g *GPU) { g.IdleAction = "cancel" },
		"gpu_mig=dynamic":                 func(g *GPU) { g.MIG = []string{"ALL"} },
		"GPU_MIG=Dynamic:gpu+n1":          func(g *GPU) { g.MIG = []string{"gpu", "n1"} },
		"gpu_mig=dynamic,gpu_mig=off":     func(*GPU) {},
		"gpu_fault=device,gpu_uuids":      func(g *GPU) { g.UUIDs = true },
		"gpu_foreign=avoid,gpu_idle=0":    func(*GPU) {},
	}
	for params, change := range tests {
		want := defaultGPU()
		change(&want)
		c, err := gpuConf(t, params)
		if err != nil {
			t.Errorf("%s: %v", params, err)
		} else if !reflect.DeepEqual(c.GPU, want) {
			t.Errorf("%s: %+v, want %+v", params, c.GPU, want)
		}
	}
}

func TestGPURulesAreChecked(t *testing.T) {
	tests := map[string]string{
		"gpu_uuid":                   "did you mean gpu_uuids?",
		"gpu_power=1":                "there are gpu_fault, gpu_foreign",
		"gpu_stat=run":               "absolute path of a directory nor off",
		"gpu_job_map=/":              "absolute path of a directory nor off",
		"gpu_uuids=yes":              "takes no value",
		"gpu_sample=0":               "not between 1 and 3600",
		"gpu_sample=often":           "not a whole number",
		"gpu_ignore_xids=13;31":      "not the number of an XID",
		"gpu_foreign=kill":           "not one of avoid, ignore",
		"gpu_idle_action=requeue":    "not one of mark, warn, cancel",
		"gpu_mig=static":             "not one of dynamic, off",
		"gpu_mig=dynamic:":           "write off, dynamic, or dynamic:name+name",
		"gpu_mig=dynamic:gpu+absent": "no node or partition \"absent\"",
	}
	for params, want := range tests {
		_, err := gpuConf(t, params)
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(faults[0].Error(), want) || faults[0].Line != 3 {
			t.Errorf("%s: %v, want one fault of line 3 with %q", params, err, want)
		}
	}
}

func TestDynamicMIG(t *testing.T) {
	for params, want := range map[string]string{"gpu_mig=off": "", "gpu_mig=dynamic": "n1 n2 g1", "gpu_mig=dynamic:gpu+n2": "n2 g1"} {
		c, err := gpuConf(t, params)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range []string{"n1", "n2", "g1"} {
			if c.DynamicMIG(n) {
				got = append(got, n)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", params, got, want)
		}
	}
}
