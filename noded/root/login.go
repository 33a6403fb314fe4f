package root

import (
	"context"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// newLogin creates noded-root of a login host: it holds the key and the socket, and looks up names.
func newLogin(ctx context.Context, o Options) (*Root, error) {
	r := &Root{o: o, log: o.Log, known: map[agent.Key]*known{}, said: map[string]bool{}}
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.loadFollowed(); err != nil {
		return nil, err
	}
	r.beginConf()
	if o.Welcome != nil {
		o.Welcome.StartNs = time.Now().UnixNano()
	}
	r.log.Info("login host's daemon started")
	return r, nil
}

// who looks up the login name of a uid in passwd(5), then in the directory service, which noded-link cannot ask.
func (r *Root) who(_ context.Context, o *nodepb.Request) (*nodepb.Answer, error) {
	uid := o.GetWho().GetUid()
	a, known, err := passwd.Find(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil, err
	}
	if !known || a.UID != uid {
		return &nodepb.Answer{}, nil
	}
	return &nodepb.Answer{User: a.Name}, nil
}
