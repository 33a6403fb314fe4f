package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/hostconf"
	"github.com/urfave/cli/v2"
)

// Where a host without its own files stores and publishes the controller's configuration.
const (
	defaultStore   = "/var/lib/sluice"
	defaultPublish = "/run/sluice/conf"
	controllerPort = "6817" // default of --conf-server
	// controllersFile, beside the certificate, has the controllers' addresses, one per line.
	controllersFile = "controllers"
)

// source is the source of the configuration.
type source struct {
	path        string   // of slurm.conf; empty: the controller
	controllers []string // addresses of the controller
	role        string   // in the certificate
	node        string
	store       *hostconf.Store
	publish     string
	bundle      *hostconf.Bundle // as of the last load
}

// findSource follows slurmd(8): --conf-server takes precedence over -f and SLURM_CONF, and these over the default path. If there is
// no slurm.conf, the controller is asked, if its address is known.
func findSource(c *cli.Context) (*source, error) {
	s := &source{path: c.String("conf"), node: c.String("node"), role: mtls.RoleNode}
	if c.Bool("login") {
		s.role = mtls.RoleLogin
	}
	s.controllers = splitServers(c.String("conf-server"))
	if len(s.controllers) == 0 {
		if _, err := os.Stat(s.path); c.IsSet("conf") || !errors.Is(err, fs.ErrNotExist) {
			return s, nil
		}
		if s.controllers = c.StringSlice("controller"); len(s.controllers) == 0 {
			raw, err := os.ReadFile(filepath.Join(c.String("tls"), controllersFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			s.controllers = strings.Fields(string(raw))
		}
		if len(s.controllers) == 0 {
			return s, nil // package conf reports the missing file
		}
	}
	files, err := mtls.HostFiles(c.String("tls"), s.role)
	if err != nil {
		return nil, err
	}
	name, err := mtls.NameOf(files.Certificate)
	if err != nil {
		return nil, err
	}
	if s.node != "" && s.node != name {
		return nil, fmt.Errorf("the certificate in %s was issued to %s, not to %s", c.String("tls"), name, s.node)
	}
	s.path, s.node = "", name
	dir := filepath.Join(defaultStore, name)
	if spool := c.String("spool"); spool != "" {
		if dir, err = filepath.Abs(spool); err != nil {
			return nil, err
		}
	}
	s.store = &hostconf.Store{Dir: filepath.Join(dir, "conf"), Authority: files.Authority}
	if os.Geteuid() == 0 || c.IsSet("publish") {
		s.publish = c.String("publish")
	}
	return s, nil
}

// splitServers reads HOST[:PORT],….
func splitServers(list string) (out []string) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		if _, _, err := net.SplitHostPort(word); err != nil {
			word = net.JoinHostPort(strings.Trim(word, "[]"), controllerPort)
		}
		out = append(out, word)
	}
	return out
}

// load reads the configuration. From the controller, it is the last one stored.
func (s *source) load() (*conf.Config, error) {
	if s.path != "" {
		return conf.Load(s.path, conf.Options{})
	}
	b, err := s.store.Load()
	if err != nil {
		return nil, err
	}
	s.bundle = b
	return b.Config()
}

// fetch waits for the first configuration, if no stored one is usable. A stored one is good enough to start: the controller will
// send a newer one.
func (s *source) fetch(ctx context.Context, c *cli.Context) error {
	if s.path != "" {
		return nil
	}
	_, err := s.load()
	if err == nil {
		return nil
	}
	logs, lerr := logfile.Open(c.String("log"))
	if lerr != nil {
		return lerr
	}
	log := slog.New(logs.Handler(slog.LevelInfo)).With("node", s.node)
	if errors.Is(err, hostconf.ErrNone) {
		log.Info("this host has no configuration yet: fetching it from the controller", "controllers", s.controllers)
	} else {
		log.Error("cannot use the stored configuration: fetching it from the controller", "err", err)
	}
	files, err := mtls.HostFiles(c.String("tls"), s.role)
	if err != nil {
		return err
	}
	o := noded.FetchOptions{NodeName: s.node, Controllers: s.controllers, Files: files, Store: s.store, Log: log}
	start, err := apart(s.node, logs)
	if err != nil {
		return err
	}
	o.Apart = func(orders *os.File) (func() error, error) { return start(orders, nil, nil) } // no relay socket yet
	b, err := noded.Fetch(ctx, o)
	if err == nil {
		log.Info("configuration fetched", "hash", b.Hash[:8], "dir", b.Dir)
	}
	return err
}

// shown returns the path of slurm.conf for jobs and commands on this host.
func (s *source) shown() string {
	switch {
	case s.path != "":
		return s.path
	case s.publish != "":
		return filepath.Join(s.publish, s.bundle.Main())
	}
	return filepath.Join(s.bundle.Dir, s.bundle.Main())
}

// adjust changes the options for a host without files. Settings about root's programs apply only as far as the node's policy
// accepts programs from the controller.
func (s *source) adjust(o *noded.Options) {
	o.Controllers = slices.Clone(s.controllers)
	own := &o.Policy.Own
	if o.Policy.NoFetched {
		own.RebootProgram, own.JobMapDir, own.StatDir = "", "", ""
	} else if name, args, _ := strings.Cut(own.RebootProgram, " "); name != "" {
		own.RebootProgram = strings.TrimSpace(s.bundle.Local(name) + " " + args)
	}
}
