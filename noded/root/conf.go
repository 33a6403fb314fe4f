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

// Conf is the node's configuration: its own files, whose checksum is Sum (conf.Config.Sum), or what the controller provided.
type Conf struct {
	Sum     string
	Store   *hostconf.Store // nil: the node has its own files
	Bundle  *hostconf.Bundle
	Publish string // directory in which commands find slurm.conf; empty: none
}

// Reread is the result of rereading the node's own files.
type Reread struct {
	Level slog.Level
	Own   policy.Own
	Sum   string
}

// beginConf puts the configuration of the start in force.
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
		r.log.Error("cannot publish slurm.conf for commands on this host", "err", err)
	}
}

// takeConf puts a configuration from the controller in force, or reports why it cannot. It runs in the order of requests: the
// settings that belong to it come next.
func (r *Root) takeConf(c *pb.Configuration) {
	if r.o.Conf.Store == nil {
		r.log.Warn("ignoring a configuration from the controller: this host has its own files")
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
	case err != nil && was.Error != now.Error: // it will be offered again
		r.log.Error("cannot use a new configuration: keeping the current one", "hash", now.Hash[:8], "err", err)
	case err == nil:
		r.publish(b)
		if r.o.Reload != nil {
			_, _ = r.reload() // it logs its errors
		}
		r.log.Info("the configuration of the controller is in force", "hash", b.Hash[:8])
	}
	r.tellConf(now)
}

// tellConf tells noded-link which configuration is in force.
func (r *Root) tellConf(c *pb.ConfigurationState) {
	c = proto.CloneOf(c)
	r.tell(func(s *session) { _ = s.out.Put(&nodepb.Word{What: &nodepb.Word_Configuration{Configuration: c}}) })
}

// ownFiles notes the checksum of the node's own files.
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

// local returns the path of a program that the controller's settings name: the copy that came with the configuration, if the
// policy accepts such programs, else the host's own.
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
