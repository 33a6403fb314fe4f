package main

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/root"
	"github.com/urfave/cli/v2"
)

// relayPath is where the relay of this host listens, "" for nowhere. A compute host without root's rights needs an explicit path,
// because the default directory is not writable. On a login host it may be (RuntimeDirectory=, systemd.exec(5)).
func relayPath(c *cli.Context, cluster string) string {
	switch path := c.String("relay"); {
	case path == "none":
		return ""
	case path != "":
		return path
	case c.String("socket") != "" || os.Geteuid() != 0 && !c.Bool("login") || cluster == "":
		return ""
	}
	return noded.RelaySocket(cluster)
}

// sessionsPath is where the node daemon listens for sessions of sshd, "" for nowhere. The default is beside the relay's socket. It
// requires root, because only root can move other users' processes.
func sessionsPath(c *cli.Context, cluster, node string) string {
	switch path := c.String("sessions"); {
	case path == "none" || os.Geteuid() != 0:
		return ""
	case path != "":
		return path
	case c.String("socket") != "" || cluster == "":
		return ""
	}
	return noded.SessionsSocket(cluster, node)
}

// controllers returns the addresses in slurm.conf.
func controllers(cfg *conf.Config) (addrs []string) {
	for _, h := range cfg.SlurmctldHosts {
		addrs = append(addrs, net.JoinHostPort(h.Addr, strconv.Itoa(cfg.SlurmctldPort)))
	}
	return addrs
}

// loginOptions returns the options of a login host.
func loginOptions(c *cli.Context, src *source) (noded.Options, logging, error) {
	o := noded.Options{NodeName: src.node, Login: true, TLS: c.String("tls"), Controllers: c.StringSlice("controller")}
	cfg, err := src.load()
	if err != nil {
		return o, logging{}, err
	}
	if o.NodeName == "" {
		if o.NodeName, err = mtls.NameIn(o.TLS, mtls.RoleLogin); err != nil {
			return o, logging{}, err
		}
	}
	o.Cluster, o.Conf = cfg.ClusterName, src.shown()
	o.Files = root.Conf{Sum: cfg.Sum, Store: src.store, Bundle: src.bundle, Publish: src.publish}
	if src.store != nil {
		o.Controllers = slices.Clone(src.controllers)
	}
	if len(o.Controllers) == 0 || src.store != nil {
		for _, addr := range controllers(cfg) {
			if !slices.Contains(o.Controllers, addr) {
				o.Controllers = append(o.Controllers, addr)
			}
		}
	}
	if o.Relay = relayPath(c, o.Cluster); o.Relay == "" {
		return o, logging{}, errors.New("a login host needs a socket for its commands: run this as root, or give --relay PATH")
	}
	return o, newLogging(cfg), nil
}
