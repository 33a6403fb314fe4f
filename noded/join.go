package noded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/internal/jointoken"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/link"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// JoinOptions are the options of Join.
type JoinOptions struct {
	Token string // the token's text
	TLS   string // directory for ca.crt, ROLE.crt and ROLE.key
	Log   *slog.Logger
	// Ask asks the token's controllers for a certificate: this package's Ask, in an unprivileged process.
	Ask func(context.Context, *nodepb.Asking) (*nodepb.Asked, error)
	// Patience is how long to ask controllers that do not answer; 0: a minute.
	Patience time.Duration
}

// askPause is the pause between attempts to reach a controller.
const askPause = time.Second

// Join makes a key, has it certified by the controllers that the token names, and stores the result. The key is stored before the
// request: a host that was stopped before it had the answer repeats the request with the same key, and the controller repeats its
// answer.
//
// The token may be given at every start. Once it was used and the directory has a certificate of that cluster, Join succeeds
// without a new one.
func Join(ctx context.Context, o JoinOptions) (mtls.Identity, error) {
	t, err := jointoken.Parse(o.Token)
	if err != nil {
		return mtls.Identity{}, err
	}
	id := mtls.Identity{Role: t.Role, Name: t.Node}
	if t.Role != mtls.RoleNode && t.Role != mtls.RoleLogin {
		return id, fmt.Errorf("cannot join as %q: this program knows the roles %s and %s", t.Role, mtls.RoleNode, mtls.RoleLogin)
	}
	// Only the last directory is private: the daemon of a login host, which is not root, must pass through its parents.
	err = os.MkdirAll(filepath.Dir(filepath.Clean(o.TLS)), 0o755)
	if err == nil {
		err = os.MkdirAll(o.TLS, 0o700)
	}
	if err != nil {
		return id, fmt.Errorf("cannot join: %w", err)
	}
	key, keyPEM, err := mtls.PendingKey(o.TLS, t.Role)
	if err != nil {
		return id, fmt.Errorf("cannot join: %w", err)
	}
	request, err := mtls.Request(key, id)
	if err != nil {
		return id, err
	}
	reply, err := o.ask(ctx, &nodepb.Asking{Controllers: t.Controllers, Fingerprint: t.Fingerprint, Join: &nodepb.JoinRequest{Token: t.ID,
		Secret: t.Secret, Node: t.Node, Role: t.Role, Cluster: t.Cluster, Request: request}})
	if err != nil {
		if hasJoined(o.TLS, id, t.Fingerprint) {
			o.Log.Info("this host has joined before: using its certificate", "host", id.Name, "role", id.Role, "token", err)
			return id, nil
		}
		return id, fmt.Errorf("cannot join cluster %s: %w", t.Cluster, err)
	}
	f := mtls.Files{Authority: reply.Authorities, Certificate: reply.Certificate, Key: keyPEM}
	if err := errors.Join(mtls.Accept(f, id), knows(f.Authority, t.Fingerprint)); err != nil {
		return id, fmt.Errorf("cannot join cluster %s: %w", t.Cluster, err)
	}
	if err := mtls.Store(o.TLS, t.Role, f); err != nil {
		return id, fmt.Errorf("cannot keep the certificate of this host: %w", err)
	}
	// The controllers' addresses, for a host without a slurm.conf of its own.
	if err := mtls.Write(filepath.Join(o.TLS, "controllers"), 0o644, []byte(strings.Join(t.Controllers, "\n")+"\n")); err != nil {
		return id, err
	}
	_ = os.Remove(mtls.NewKey(o.TLS, t.Role))
	o.Log.Info("this host has joined", "cluster", t.Cluster, "host", id.Name, "role", id.Role, "folder", o.TLS)
	return id, nil
}

// ask retries until a controller answers.
func (o *JoinOptions) ask(ctx context.Context, q *nodepb.Asking) (*nodepb.CertificateReply, error) {
	patience := o.Patience
	if patience == 0 {
		patience = time.Minute
	}
	for began := time.Now(); ; {
		a, err := o.Ask(ctx, q)
		switch {
		case err != nil:
			return nil, err
		case a.Reply != nil:
			return a.Reply, nil
		case !a.Again || time.Since(began) > patience:
			return nil, errors.New(a.Error)
		}
		o.Log.Warn("cannot join yet: will keep trying", "err", a.Error)
		pause(ctx, askPause)
		if ctx.Err() != nil {
			return nil, errors.New(a.Error)
		}
	}
}

// hasJoined reports whether the directory has a certificate for this host from the CA with that fingerprint.
func hasJoined(dir string, id mtls.Identity, fingerprint []byte) bool {
	f, err := mtls.HostFiles(dir, id.Role)
	return err == nil && mtls.Accept(f, id) == nil && knows(f.Authority, fingerprint) == nil
}

func knows(authorities, fingerprint []byte) error {
	all, err := mtls.ParseAuthorities(authorities, "what came with the certificate")
	if err != nil {
		return err
	}
	for _, c := range all {
		if f := mtls.Fingerprint(c); bytes.Equal(f[:], fingerprint) {
			return nil
		}
	}
	return errors.New("the certificate did not come with the authority that the token names")
}

// askTimeout bounds one attempt at one controller.
const askTimeout = 15 * time.Second

// Ask asks the token's controllers in turn until one certifies or refuses.
func Ask(ctx context.Context, q *nodepb.Asking) *nodepb.Asked {
	if len(q.Fingerprint) != sha256.Size {
		return &nodepb.Asked{Error: "the token has no fingerprint"}
	}
	out := &nodepb.Asked{Again: true}
	var failed []string
	for _, addr := range q.Controllers {
		reply, err := askOne(ctx, addr, q)
		if err == nil {
			return &nodepb.Asked{Reply: reply}
		}
		st := status.Convert(err)
		failed = append(failed, addr+": "+st.Message())
		switch st.Code() {
		case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
			out.Again = false
		case codes.Unavailable, codes.Unknown: // a controller with another CA will not get the right one
			out.Again = out.Again && !strings.Contains(st.Message(), mtls.ErrPeer.Error())
		}
	}
	out.Error = strings.Join(failed, "; ")
	return out
}

func askOne(ctx context.Context, addr string, q *nodepb.Asking) (*nodepb.CertificateReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := link.Dial(link.Options{TLS: mtls.Joining([sha256.Size]byte(q.Fingerprint))}, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return nodepb.NewEnrolAPIClient(conn).Join(ctx, q.Join)
}

// AskFrom is Ask for a separate process: it decodes the request and encodes the answer.
func AskFrom(ctx context.Context, in []byte) ([]byte, error) {
	q := &nodepb.Asking{}
	if err := proto.Unmarshal(in, q); err != nil {
		return nil, fmt.Errorf("cannot decode the request to join: %w", err)
	}
	return proto.Marshal(Ask(ctx, q))
}
