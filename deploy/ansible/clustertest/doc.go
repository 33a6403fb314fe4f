// Package clustertest deploys a cluster with Ansible, over ssh, on hosts with their own systemd, and performs an administrator's
// tasks on it. `make test-cluster` runs it; without -cluster its tests are skipped.
//
// A host is a systemd-nspawn container over the root file system that the script root maintains. Its writes go to memory, in
// mount and process namespaces that end with the test, however it ends. The hosts are on a bridge of an isolated network, in
// which ansible-playbook runs as well.
package clustertest
