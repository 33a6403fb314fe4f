// Package roletest tests the filters of the collection, and single parts of its roles, without a host: on this machine, in a
// mount namespace with copy-on-write /etc, /usr/local and /var and an empty /run. Without ansible-playbook or root its tests are
// skipped. Package clustertest tests whole clusters.
package roletest
