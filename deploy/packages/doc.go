// Package packages has the tests of what deploy/packages builds: they install it on hosts that are booted with systemd of their own.
package packages
