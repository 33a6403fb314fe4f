// Package clustertest rolls a cluster out with Ansible, over ssh, on hosts with their own systemd, and performs an
// administrator's tasks on it. `make test-cluster` runs it; without -cluster its tests are skipped.
//
// A host is a systemd-nspawn container over the root file system that the script root keeps. Its writes go to memory, in
// mount and process namespaces that end with the test, however that ends. The hosts are on a bridge of a network that
// has no way out, into which ansible-playbook is put as well.
package clustertest
