package conf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const twoNodes = "ClusterName=c\nSlurmctldHost=h\nNodeName=n[1-2],g1 NodeHostname=h Port=[1-3]\nPartitionName=p Nodes=ALL\n"

func TestJobContainers(t *testing.T) {
	for _, c := range []struct{ slurm, file, want string }{
		{"", "BasePath=/x", "n1 - n2 - g1 -"},
		{"JobContainerType=job_container/tmpfs", "AutoBasePath=true\nBasePath=/nvme",
			"n1 /nvme/n1@c true /tmp,/dev/shm n2 /nvme/n2@c true /tmp,/dev/shm g1 /nvme/g1@c true /tmp,/dev/shm"},
		{"NamespaceType=namespace/tmpfs", "AutoBasePath=true\nNodeName=g1 basepath=none\nBasePath=/nvme/%h Dirs=/var/tmp/ # comment",
			"n1 /nvme/h/n1@c true /var/tmp n2 /nvme/h/n2@c true /var/tmp g1 -"},
		{"JobContainerType=job_container/tmpfs", "NodeName=n[1-2] AutoBasePath=false BasePath=/a\nAutoBasePath=true\nBasePath=/b Dirs=/tmp",
			"n1 /a/n1@c false /tmp,/dev/shm n2 /a/n2@c false /tmp,/dev/shm g1 /b/g1@c true /tmp"},
		{"JobContainerType=job_container/tmpfs", "Dirs=/dev/shm", "n1  false /dev/shm n2  false /dev/shm g1  false /dev/shm"},
		{"JobContainerType=job_container/tmpfs", "BasePath=/a Dirs=/tmp,/tmpx", "n1 /a/n1@c false /tmp,/tmpx n2 /a/n2@c false /tmp,/tmpx " +
			"g1 /a/g1@c false /tmp,/tmpx"},
		{"JobContainerType=job_container/none", "BasePath=x", "n1 - n2 - g1 -"},
	} {
		f := files{"slurm.conf": twoNodes + c.slurm + "\n", "job_container.conf": c.file + "\n"}
		got, err := Load("/slurm.conf", f.options())
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		var b strings.Builder
		for _, n := range got.Nodes {
			if j := got.JobContainer(n); j == nil {
				fmt.Fprintf(&b, "%s - ", n.Name)
			} else {
				fmt.Fprintf(&b, "%s %s %v %s ", n.Name, j.BasePath, j.AutoBase, strings.Join(j.Dirs, ","))
			}
		}
		if s := strings.TrimSuffix(b.String(), " "); s != c.want {
			t.Errorf("%+v: %q", c, s)
		}
	}
	for file, want := range map[string]string{
		"BasePath=/x\nInitScript=/y":            "",
		"BasePath=x":                            "neither the absolute path of a directory nor none",
		"BasePath=/x Dirs=tmp":                  "not the absolute path of a directory",
		"AutoBasePath=true":                     "no BasePath for /tmp,/dev/shm",
		"BasePath=/tmp":                         "BasePath=/tmp is one of Dirs",
		"BasePath=/x Dirs=/tmp,/tmp/x":          "Dirs: /tmp/x is in /tmp",
		"BasePath=/x Dirs=/dev/shm/a,/dev/shm":  "Dirs: /dev/shm/a is in /dev/shm",
		"BasePath=/x Dirs=/tmp,/tmp/":           "Dirs: /tmp is in /tmp",
		"BasePath=/tmp/x Dirs=/var/tmp,/tmp":    "BasePath=/tmp/x is in /tmp, one of Dirs",
		"BasePath=/x Dir=/tmp":                  "unknown key Dir",
		"NodeName=n[1- BasePath=/x":             "NodeName=n[1-",
		"BasePath=/x\nNodeName=n1 Shared=maybe": "Shared",
	} {
		f := files{"slurm.conf": twoNodes + "JobContainerType=job_container/tmpfs\n", "job_container.conf": file + "\n"}
		c, err := Load("/slurm.conf", f.options())
		if want == "" {
			if err != nil || len(c.Ignored) != 1 || c.Ignored[0].Key != "job_container.conf InitScript" {
				t.Errorf("%s: %v, ignored %v", file, err, c.Ignored)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "job_container.conf:") {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if _, err := Load("/slurm.conf", files{"slurm.conf": twoNodes + "JobContainerType=job_container/tmpfs\n"}.options()); err == nil ||
		!strings.Contains(err.Error(), "needs /job_container.conf, which does not exist") {
		t.Errorf("without the file: %v", err)
	}
}

// TestInSight: links are followed, and what does not exist yet is where it will be.
func TestInSight(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "tmp"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := files{"slurm.conf": twoNodes + "JobContainerType=job_container/tmpfs\n",
		"job_container.conf": "NodeName=n2 BasePath=none\nBasePath=/x Dirs=" + dir + "/tmp\n"}
	c, err := Load("/slurm.conf", f.options())
	if err != nil {
		t.Fatal(err)
	}
	for path, hidden := range map[string]bool{"/tmp": true, "/tmp/a/b": true, "/link/spool": true, "/tmpx": false, "": false,
		"/other/tmp": false} {
		if err := c.InSight(c.Nodes[0], dir+path); (err != nil) != hidden {
			t.Errorf("%s: %v", path, err)
		} else if hidden && !strings.Contains(err.Error(), "have a "+dir+"/tmp of their own") {
			t.Error(err)
		}
		if err := c.InSight(c.Nodes[1], dir+path); err != nil {
			t.Errorf("on a node without private directories: %v", err)
		}
	}
}

func TestPrivacyWords(t *testing.T) {
	for words, want := range map[string]string{
		"config_overrides":                                 "{IPC:false NoNewPrivs:false Bounded:false Capabilities:0}",
		"private_ipc,no_new_privs,capabilities=none":       "{IPC:true NoNewPrivs:true Bounded:true Capabilities:0}",
		"capabilities=cap_kill+NET_RAW+checkpoint_restore": "{IPC:false NoNewPrivs:false Bounded:true Capabilities:1099511636000}",
		"capabilities=everything":                          "unknown capability \"everything\"",
		"capabilities":                                     "unknown capability \"\"",
	} {
		c, err := Load("/slurm.conf", files{"slurm.conf": twoNodes + "SlurmdParameters=" + words + "\n"}.options())
		got := ""
		if err == nil {
			got = fmt.Sprintf("%+v", c.Privacy)
		} else {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
