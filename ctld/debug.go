package ctld

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-hpc/sluice/conf"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// LogHandler passes on lines at or above the debug level, and below it those of the debug flags: lines whose attribute "flag" names a flag
// that is set (slurm.conf(5), SlurmctldDebug and DebugFlags). Both can change at any time. A second handler applies its own level
// (SlurmctldSyslogDebug).
type LogHandler struct {
	slog.Handler // handles every line
	also         slog.Handler
	rules        *logRules
}

type logRules struct {
	level slog.LevelVar
	flags atomic.Pointer[[]string]
}

// NewLogHandler makes a handler that writes to next, initially from info on, and to also.
func NewLogHandler(next, also slog.Handler) *LogHandler {
	return &LogHandler{Handler: next, also: also, rules: &logRules{}}
}

// Set changes level and flags.
func (h *LogHandler) Set(level slog.Level, flags []string) {
	h.rules.level.Set(level)
	h.rules.flags.Store(&flags)
}

func (r *logRules) flagged() []string {
	if f := r.flags.Load(); f != nil {
		return *f
	}
	return nil
}

// Enabled implements slog.Handler.
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.rules.level.Level() || len(h.rules.flagged()) > 0 || h.also.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	var err error
	if h.also.Enabled(ctx, r.Level) {
		err = h.also.Handle(ctx, r.Clone())
	}
	pass := r.Level >= h.rules.level.Level()
	if !pass {
		r.Attrs(func(a slog.Attr) bool {
			pass = a.Key == "flag" && slices.Contains(h.rules.flagged(), a.Value.String())
			return !pass
		})
	}
	if !pass {
		return err
	}
	return errors.Join(err, h.Handler.Handle(ctx, r))
}

// WithAttrs implements slog.Handler.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LogHandler{Handler: h.Handler.WithAttrs(attrs), also: h.also.WithAttrs(attrs), rules: h.rules}
}

// WithGroup implements slog.Handler.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	return &LogHandler{Handler: h.Handler.WithGroup(name), also: h.also.WithGroup(name), rules: h.rules}
}

// useConfig makes a configuration the present one.
func (d *daemon) useConfig(c *conf.Config) {
	d.conf.Store(c)
	if h, ok := d.log.Handler().(*LogHandler); ok {
		h.Set(conf.SlogLevel(c.SlurmctldDebug), c.DebugFlags)
	}
}

// nodeDebug holds the levels of single node daemons, until the configuration is read again.
type nodeDebug struct {
	mu     sync.Mutex
	levels map[string]string
}

// forgetDebug makes a newly read configuration the present one, without changes by setDebug.
func (d *daemon) forgetDebug(c *conf.Config) {
	d.nodeDebug.mu.Lock()
	defer d.nodeDebug.mu.Unlock()
	d.nodeDebug.levels = nil
	d.useConfig(c)
}

// nodeLevel returns the level at which a node daemon logs.
func (d *daemon) nodeLevel(node string) slog.Level {
	d.nodeDebug.mu.Lock()
	defer d.nodeDebug.mu.Unlock()
	return conf.SlogLevel(cmp.Or(d.nodeDebug.levels[node], d.conf.Load().SlurmdDebug))
}

// setDebug changes the controller's level and flags, or the level of node daemons, until the configuration is read again (scontrol(1)).
func (d *daemon) setDebug(r *pb.SetDebugRequest, nodes []string) *pb.Problem {
	level, err := "", error(nil)
	if r.Level != "" {
		if level, err = conf.DebugLevel(r.Level); err != nil {
			return pb.NewProblem(pb.CodeInvalidSpec, "%v", err)
		}
	}
	if len(nodes) > 0 {
		d.setNodeLevels(nodes, level)
		d.disp.Resend(nodes) // calls nodeLevel, which takes the lock
		return nil
	}
	d.nodeDebug.mu.Lock()
	defer d.nodeDebug.mu.Unlock()
	c := *d.conf.Load()
	c.SlurmctldDebug = cmp.Or(level, c.SlurmctldDebug)
	var p *pb.Problem
	if c.DebugFlags, p = changeFlags(c.DebugFlags, r.AddFlags, r.RemoveFlags); p != nil {
		return p
	}
	d.useConfig(&c)
	d.log.Info("log level or debug flags changed", "level", c.SlurmctldDebug, "flags", strings.Join(c.DebugFlags, ","))
	return nil
}

func (d *daemon) setNodeLevels(nodes []string, level string) {
	d.nodeDebug.mu.Lock()
	defer d.nodeDebug.mu.Unlock()
	if d.nodeDebug.levels == nil {
		d.nodeDebug.levels = map[string]string{}
	}
	for _, n := range nodes {
		d.nodeDebug.levels[n] = level
	}
}

func changeFlags(flags, add, remove []string) ([]string, *pb.Problem) {
	flags = slices.Clone(flags)
	change := func(words []string, add bool) *pb.Problem {
		for _, word := range words {
			name, ok := conf.DebugFlag(word)
			if !ok {
				return pb.NewProblem(pb.CodeInvalidSpec, "there is no debug flag %q", word)
			}
			flags = slices.DeleteFunc(flags, func(f string) bool { return strings.EqualFold(f, name) })
			if add {
				flags = append(flags, name)
			}
		}
		return nil
	}
	if p := change(add, true); p != nil {
		return nil, p
	}
	return flags, change(remove, false)
}
