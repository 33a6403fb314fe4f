package container

import (
	"reflect"
	"strings"
	"testing"
)

func TestImage(t *testing.T) {
	const sum = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for in, want := range map[string]string{
		"ubuntu":                             "docker://docker.io/library/ubuntu",
		"ubuntu:24.04":                       "docker://docker.io/library/ubuntu:24.04",
		"docker://ubuntu":                    "docker://docker.io/library/ubuntu",
		"user/image:1":                       "docker://docker.io/user/image:1",
		"nvcr.io#nvidia/pytorch:24.01-py3":   "docker://nvcr.io/nvidia/pytorch:24.01-py3",
		"docker://nvcr.io#nvidia/pytorch:24": "docker://nvcr.io/nvidia/pytorch:24",
		"nvcr.io/nvidia/pytorch:24.01-py3":   "docker://nvcr.io/nvidia/pytorch:24.01-py3",
		"registry:5000#team/x":               "docker://registry:5000/team/x",
		"localhost/x:1":                      "docker://localhost/x:1",
		"ubuntu" + sum:                       "docker://docker.io/library/ubuntu" + sum,
		"nvcr.io#nvidia/x" + sum:             "docker://nvcr.io/nvidia/x" + sum,
		"oci-archive:/data/x.tar":            "oci-archive:/data/x.tar",
		"docker-archive:/data/x.tar":         "docker-archive:/data/x.tar",
		"oci:/data/x:latest":                 "oci:/data/x:latest",
		"dir:/data/x":                        "dir:/data/x",
		"oci:22.04":                          "docker://docker.io/library/oci:22.04",
	} {
		if got, err := Image(in); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                        "argument required",
		strings.Repeat("a", 2000): "limit is 1024",
		"a b":                     "printable ASCII",
		"a\nb":                    "printable ASCII",
		"/data/x.sqsh":            "squashfs images",
		"./x.squashfs":            "squashfs images",
		"./":                      "format in front",
		"/dev/urandom":            "format in front",
		"oci-archive:/":           "names no file",
		"dockerd://ubuntu":        "dockerd:// is not supported",
		"$oauthtoken@nvcr.io#x":   "podman login",
		"me@ubuntu":               "podman login",
		"ubuntu@sha256:abc":       "podman login",
		"ubuntu:":                 "expected [REGISTRY#]IMAGE",
		"--help":                  "",
		"a//b":                    "expected [REGISTRY#]IMAGE",
		"nvcr.io#":                "expected [REGISTRY#]IMAGE",
		"nvcr.io#/x":              "expected [REGISTRY#]IMAGE",
	} {
		got, err := Image(in)
		if want == "" { // no option of Podman's: the scheme is in front
			if err != nil || !strings.HasPrefix(got, "docker://") {
				t.Errorf("%q: %q, %v", in, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestMounts(t *testing.T) {
	got, err := Mounts("/home:/test-mnt,./:/w:ro,/data,tmpfs:/scratch,../x:y/../z:ro+rprivate+x-create=dir,/a:./b", "/home/u")
	if err == nil { // y begins with neither / nor .
		t.Errorf("%v", got)
	}
	got, err = Mounts("/home:/test-mnt,./:/w:ro,/data,tmpfs:/scratch,../x:/y/../z:ro+rprivate+x-create=dir,/a:./b,/a:../../b", "/home/u")
	want := []Mount{{"/home", "/test-mnt", nil}, {"/home/u", "/w", []string{"ro"}}, {"/data", "/data", nil}, {"", "/scratch", nil},
		{"/home/x", "/z", []string{"ro", "rprivate"}}, {"/a", "/b", nil}, {"/a", "/b", nil}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, m := range got { // what goes over the network is read again
		again, err := Mounts(m.String(), "/")
		if err != nil || !reflect.DeepEqual(again, []Mount{m}) {
			t.Errorf("%s: %v, %v", m, again, err)
		}
	}
	for in, want := range map[string]string{
		"": "argument required", ":": "expected SOURCE", "/tmp:": "expected SOURCE", "/a:/b,": "expected SOURCE",
		"data:/x": "the source must be", "umount:/x": "umount is not supported", "/a:/": "nothing can be mounted on /",
		"/a:/proc": "nothing can be mounted", "/a:/b:idmap": `unknown flag "idmap"`, "/a:/b:ro,/c:U": "the target must be",
		"/a:/b:O": `unknown flag "O"`, strings.Repeat("/a,", 200) + "/a": "at most 128",
	} {
		if got, err := Mounts(in, "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", in, got, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{"torch": "torch", "a.b_c-1": "a.b_c-1", "x:auto": "x", "x:exec": "", "": "", ":auto": "",
		"/tmp/foo": "", "..": "", "-v": "", "a b": "", strings.Repeat("a", 65): ""} {
		if got, err := Name(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]int{"A": 1, "A,b_1": 2, "": 0, "A,": 0, "1A": 0, "A=b": 0} {
		if got, err := Env(in); len(got) != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{"/usr/local/bin": "/usr/local/bin", "../": "/", "x": "/x", "": ""} {
		if got, err := Workdir(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func FuzzGrammar(f *testing.F) {
	for _, s := range []string{"nvcr.io#nvidia/pytorch:24.01", "oci-archive:/x", "/a:/b:ro+rbind,tmpfs:/x", "a@b#c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ref, err := Image(s); err == nil {
			if again, err := Image(ref); err != nil || again != ref {
				t.Errorf("%q is %q, which is %q (%v)", s, ref, again, err)
			}
		}
		list, err := Mounts(s, "/dir")
		if err != nil {
			return
		}
		for _, m := range list {
			if again, err := Mounts(m.String(), "/"); err != nil || len(again) != 1 || again[0].String() != m.String() {
				t.Errorf("%q: %q is %v (%v)", s, m, again, err)
			}
		}
	})
}
