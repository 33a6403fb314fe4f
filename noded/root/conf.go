package root

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/sluice-hpc/sluice/noded/hostconf"
	"github.com/sluice-hpc/sluice/noded/policy"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Conf is what a node goes by: files of its own, of which Sum is what they say (conf.Config.Sum), or what it was given by the controller.
type Conf struct {
	Sum     string
	Store   *hostconf.Store // nil: files of its own
	Bundle  *hostconf.Bundle
	Publish string // folder in which commands find slurm.conf; empty: nowhere
}

// Reread is what the files say now.
type Reread struct {
	Level slog.Level
	Own   policy.Own
	Sum   string
}

// beginConf takes over what the node goes by at its start.
func (r *Root) beginConf() {
	c := r.o.Conf
	r.conf = &pb.ConfigurationState{Hash: c.Sum}
	if c.Store == nil {
		return
	}
	r.conf, r.bundle = &pb.ConfigurationState{Hash: c.Bundle.Hash, Fetched: true}, c.Bundle
	r.judge.Fetched = c.Store.Dir
	r.publish(c.Bundle)
}

func (r *Root) publish(b *hostconf.Bundle) {
	if r.o.Conf.Publish == "" {
		return
	}
	if err := b.Publish(r.o.Conf.Publish); err != nil {
		r.log.Error("commands on this host do not find slurm.conf", "err", err)
	}
}

// takeConf puts a configuration in force that the controller has given, or says why not. It is done in its turn: the settings that go with
// it come next.
func (r *Root) takeConf(c *pb.Configuration) {
	if r.o.Conf.Store == nil {
		r.log.Warn("the controller has sent a configuration, but this host has files of its own")
		return
	}
	b, err := r.o.Conf.Store.Put(c)
	r.mu.Lock()
	was := r.conf
	now := &pb.ConfigurationState{Hash: r.bundle.Hash, Fetched: true}
	if err == nil {
		r.bundle, now.Hash = b, b.Hash
	} else {
		now.Error = err.Error()
	}
	r.conf = now
	r.mu.Unlock()
	switch {
	case err != nil && was.Error != now.Error: // it comes again
		r.log.Error("the configuration stays as it was", "hash", now.Hash[:8], "err", err)
	case err == nil:
		r.publish(b)
		if r.o.Reload != nil {
			_, _ = r.reload() // says what is wrong
		}
		r.log.Info("the configuration of the controller is in force", "hash", b.Hash[:8])
	}
	r.tellConf(now)
}

// tellConf tells noded-link what is in force.
func (r *Root) tellConf(c *pb.ConfigurationState) {
	c = proto.CloneOf(c)
	r.tell(func(s *session) { _ = s.out.Put(&nodepb.Word{What: &nodepb.Word_Configuration{Configuration: c}}) })
}

// ownFiles notes what the files of the node say now.
func (r *Root) ownFiles(sum string) {
	r.mu.Lock()
	news := r.bundle == nil && sum != r.conf.Hash
	if news {
		r.conf = &pb.ConfigurationState{Hash: sum}
	}
	now := r.conf
	r.mu.Unlock()
	if news {
		r.tellConf(now)
	}
}

// local is where a program is that the controller's settings name: a copy of the controller's, when it came with the configuration and the
// policy takes such programs, else the host's own.
func (r *Root) local(path string) string {
	if r.judge.Strict && r.judge.NoFetched {
		return path
	}
	r.mu.Lock()
	b := r.bundle
	r.mu.Unlock()
	return b.Local(path)
}

// localWords is local for a command with arguments.
func (r *Root) localWords(command string) string {
	name, args, _ := strings.Cut(strings.TrimSpace(command), " ")
	return strings.TrimSpace(fmt.Sprint(r.local(name), " ", args))
}
