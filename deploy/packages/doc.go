// Package packages tests the packages that deploy/packages builds: it installs them on booted hosts with systemd.
package packages
