// Package roletest tests the filters of the collection, and single parts of its roles, without a host: on this machine,
// in a mount namespace whose /etc, /usr/local and /var are copies on write and whose /run is empty. Where
// ansible-playbook or root is missing, its tests are skipped. Package clustertest tests whole clusters.
package roletest
