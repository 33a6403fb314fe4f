package ctld

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/hostconf"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/mtls"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// reading is a configuration that was read, and its bundle for hosts without files.
type reading struct {
	*conf.Config
	seen   map[string][]byte
	bundle []byte
	faults []error // of the programs that such hosts would run
	why    error   // why there is no bundle
}

func (r *reading) getBundle() []byte {
	if r == nil {
		return nil
	}
	return r.bundle
}

// read reads the files.
func (d *daemon) read() (*reading, error) {
	path, err := filepath.Abs(d.opts.Conf) // hosts are told the path
	if err != nil {
		return nil, err
	}
	r := &reading{seen: map[string][]byte{}}
	if r.Config, err = conf.Load(path, conf.Options{Seen: func(path string, data []byte) { r.seen[path] = data }}); err != nil {
		return nil, err
	}
	r.Config.SlurmctldDebug = cmp.Or(d.opts.Debug, r.Config.SlurmctldDebug)
	return r, nil
}

// pack makes the bundle for hosts without files. It runs as SlurmUser, who has to be able to read the programs.
func (d *daemon) pack(r *reading) {
	r.bundle, r.faults, r.why = hostconf.Make(r.Config, r.seen, d.uid)
	r.seen = nil
}

// stateConfig returns the state's configuration of a reading.
func (d *daemon) stateConfig(r *reading) *state.Config {
	cfg := stateConfig(r.Config, d.uid)
	if !hasWord(r.DebugFlags, "NO_CONF_HASH") {
		cfg.Settings.ConfSum = r.Sum
	}
	if r.why == nil {
		cfg.Settings.BundleHash = hostconf.Hash(r.bundle)
	}
	return cfg
}

// hand publishes the bundle for hosts without files.
func (d *daemon) hand(r *reading) {
	if d.hosts == nil { // a controller without its parts
		return
	}
	d.hosts.Set(r.bundle, r.why)
	if !d.bare(r) {
		return
	}
	for _, err := range append(r.faults, r.why) {
		if err != nil {
			d.log.Warn("hosts without configuration files of their own would lack files", "err", err)
		}
	}
}

// bare reports whether there are hosts without files of their own.
func (d *daemon) bare(r *reading) bool {
	if r.SlurmctldParameters.Has("enable_configless") {
		return true
	}
	for _, n := range d.loop.View().Nodes() {
		if n.ConfFetched {
			return true
		}
	}
	return false
}

// sign signs the bundle with the present certificate.
func (d *daemon) sign(data []byte) (signature, certificate []byte, err error) {
	cfg := d.certs.tls.Load()
	if cfg == nil || len(cfg.Certificates) == 0 {
		return nil, nil, errors.New("the controller has no certificate")
	}
	return mtls.Sign(cfg.Certificates[0], data)
}

// unfit returns the reason why a reading cannot be applied, or nil: it names missing programs that the present configuration does not name.
func (d *daemon) unfit(now *conf.Config, before, r *reading) error {
	known := map[string]bool{}
	for _, f := range now.MissingPrograms(d.uid) {
		known[f.Msg] = true
	}
	var faults conf.Faults
	for _, f := range r.MissingPrograms(d.uid) {
		if !known[f.Msg] {
			faults = append(faults, f)
		}
	}
	var errs []error
	if len(faults) > 0 {
		errs = append(errs, faults)
	}
	if !d.bare(r) {
		return errors.Join(errs...)
	}
	if before != nil {
		for _, err := range before.faults {
			known[err.Error()] = true
		}
	}
	for _, err := range r.faults {
		if !known[err.Error()] {
			errs = append(errs, fmt.Errorf("hosts without configuration files would not get %w", err))
		}
	}
	return errors.Join(append(errs, r.why)...)
}

// configuration returns the bundle that the dispatcher gives to a node without files.
func (d *daemon) configuration() (hash string, c *pb.Configuration) {
	hash, c, _, err := d.hosts.Now()
	if err != nil {
		return "", nil
	}
	return hash, c
}
