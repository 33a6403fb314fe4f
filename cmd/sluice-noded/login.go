package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/mtls"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/urfave/cli/v2"
)

// relayPath is where the relay of this host listens, "" being nowhere. Without root's rights there is none unless it is asked for: the
// usual folder is not this user's to write to.
func relayPath(c *cli.Context, cluster string) string {
	switch path := c.String("relay"); {
	case path == "none":
		return ""
	case path != "":
		return path
	case c.String("socket") != "" || os.Geteuid() != 0 || cluster == "":
		return ""
	}
	return noded.RelaySocket(cluster)
}

// controllers are the addresses of slurm.conf.
func controllers(cfg *conf.Config) (addrs []string) {
	for _, h := range cfg.SlurmctldHosts {
		addrs = append(addrs, net.JoinHostPort(h.Addr, strconv.Itoa(cfg.SlurmctldPort)))
	}
	return addrs
}

// loginOptions are those of a login host. It needs no slurm.conf where the command line says what it has to know.
func loginOptions(c *cli.Context) (noded.Options, logging, error) {
	o := noded.Options{NodeName: c.String("node"), Login: true, TLS: c.String("tls"), Controllers: c.StringSlice("controller")}
	var err error
	if o.NodeName == "" {
		if o.NodeName, err = mtls.NameIn(o.TLS, mtls.RoleLogin); err != nil {
			return o, logging{}, err
		}
	}
	cfg, err := conf.Load(c.String("conf"), conf.Options{})
	switch {
	case err == nil:
		o.Cluster, o.Conf = cfg.ClusterName, cfg.Path
		if len(o.Controllers) == 0 {
			o.Controllers = controllers(cfg)
		}
	case !errors.Is(err, fs.ErrNotExist) || len(o.Controllers) == 0 || c.String("relay") == "":
		return o, logging{}, fmt.Errorf("%w; a login host without slurm.conf needs --controller and --relay", err)
	}
	if o.Relay = relayPath(c, o.Cluster); o.Relay == "" {
		return o, logging{}, errors.New("a login host needs a socket for its commands: run this as root, or give --relay PATH")
	}
	if cfg == nil {
		return o, logging{}, nil
	}
	return o, logging{level: conf.SlogLevel(cfg.SlurmdDebug)}, nil
}
