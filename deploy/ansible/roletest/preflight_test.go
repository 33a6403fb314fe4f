package roletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// TestNoiseBeforeTheProbe: what sudo says on the way does not hide what the preflight finds.
func TestNoiseBeforeTheProbe(t *testing.T) {
	r := play{inventory: "[controller]\nhead\n", hosts: "head", vars: map[string]any{"ansible_python_interpreter": "noisy",
		"sluice_preflight": false}, programs: map[string]string{"noisy": "#!/bin/sh\n" +
		"case $* in *probe.py*) echo 'sudo: unable to resolve host head: Name or service not known' ;; esac\n" +
		"exec /usr/bin/python3 \"$@\"\n"},
		tasks: "- file: common/preflight\n- debug: {msg: 'systemd is {{ sluice_found.init }}.'}\n"}.good(t)
	if !r.says("systemd is ") {
		t.Errorf("%s", r.out)
	}
}

// TestPortOfTheNameInUse: the port is looked for at the name that slurm.conf has, and so the host's token.
func TestPortOfTheNameInUse(t *testing.T) {
	r := play{inventory: "[controller]\nhead ansible_host=127.0.0.1\n[nodes]\nn1\n", hosts: "n1",
		vars:  map[string]any{"slurm_config": map[string]any{"SlurmctldHost": "head.invalid"}},
		tasks: "- file: common/ports\n- debug: {var: sluice_port_problem}\n"}.good(t)
	if !r.says("the name head.invalid of the controller is not known here") || !r.says("SlurmctldHost=head.invalid(ADDRESS)") {
		t.Errorf("%s", r.out)
	}
}

// TestPortOfTheController: a host reaches the listener that stands in for a controller that has not been started yet, and it is gone after.
func TestPortOfTheController(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	r := play{inventory: "[controller]\nhead ansible_host=127.0.0.1\n[nodes]\nn1\n", hosts: "n1",
		vars:  map[string]any{"slurm_config": map[string]any{"SlurmctldHost": "head(127.0.0.2)"}, "sluice_port": port},
		tasks: "- file: common/ports\n- debug: {msg: 'said={{ sluice_connect.stdout }}={{ sluice_port_problem }}='}\n"}.good(t)
	if !r.says("said=ok==") {
		t.Errorf("%s", r.out)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if l, err = net.Listen("tcp", ":"+port); err == nil {
			_ = l.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the listener is there still: %v", err)
		}
	}
}

// certificate is one for a host, as text.
func certificate(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{"node"}}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestNamesOfHosts: a host joins under the name that it has itself, or that sluice_node_name says, and keeps it.
func TestNamesOfHosts(t *testing.T) {
	r := play{inventory: "[controller]\nhead\n[nodes]\nmisnamed\nsaid sluice_node_name=n2\nrenamed sluice_node_name=n3\n",
		before: "mkdir -p /etc/sluice/tls; echo '" + certificate(t, "n2") + "' >/etc/sluice/tls/node.crt\n",
		vars: map[string]any{"sluice_check_ports": false, "sluice_check_accounts": false, "sluice_gpu_check": false,
			"sluice_require_cgroup_v2": false, "sluice_min_free_mib": 0},
		tasks: "- file: common/preflight\n"}.run(t)
	for text, want := range map[string]bool{
		"and the inventory calls it misnamed:":              true,
		"it has joined the cluster as n2 and is to be n3: ": true,
		"the inventory calls it said":                       false,
		"the inventory calls it renamed":                    false,
		"and is to be n2":                                   false,
		"the inventory calls it head":                       false, // which needs no certificate
	} {
		if r.says(text) != want {
			t.Errorf("%q is said: %v, want %v\n%s", text, !want, want, r.out)
		}
	}
}
