// Package greet is the handshake of a host's calls to the controller. The host sends the build of its daemon, its clock, and the
// generation that it has followed, and receives the controller's build and generation. The controller refuses builds and clocks
// that differ too much, and hosts that have followed a newer generation (ctld/rpc, greet.go). This package refuses a controller
// whose build or state is too old.
package greet

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-hpc/sluice/internal/version"
)

// Options returns the dial options for the controller. signs (may be nil) is called for each stream with the CA that signs
// certificates; it must not block. followed may be nil.
func Options(followed *Followed, signs func(authority string)) []grpc.DialOption {
	return as(version.Ours, followed, signs)
}

func as(ours version.Build, followed *Followed, signs func(string)) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			var head metadata.MD
			err := call(greeting(ctx, ours, followed), method, req, reply, conn, append(o, grpc.Header(&head))...)
			if old := followed.meet(head); old != nil {
				return old
			}
			if err != nil {
				return err
			}
			return judge(ours, head)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(greeting(ctx, ours, followed), d, conn, method, o...)
			if err != nil {
				return nil, err
			}
			return &stream{ClientStream: s, ours: ours, followed: followed, signs: signs}, nil
		}),
	}
}

// greeting adds the host's side of the handshake.
func greeting(ctx context.Context, ours version.Build, followed *Followed) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, version.Key, ours.String(), version.ClockKey, strconv.FormatInt(time.Now().UnixNano(), 10))
	if said := followed.said(); said != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, version.GenerationKey, said)
	}
	return ctx
}

// judge checks the controller's build.
func judge(ours version.Build, head metadata.MD) error {
	said := ""
	if v := head.Get(version.Key); len(v) > 0 {
		said = v[0]
	}
	if err := ours.Meets("sluice-noded of this host", "the controller", version.Parse(said)); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

// stream checks the controller when its first message arrives.
type stream struct {
	grpc.ClientStream
	ours     version.Build
	followed *Followed
	signs    func(string)
	judged   atomic.Bool
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.judged.Swap(true) {
		return err
	}
	head, herr := s.Header()
	if herr == nil { // even on a refusal: this host knows better which side is outdated
		herr = s.followed.meet(head)
	}
	if herr != nil && status.Code(herr) == codes.FailedPrecondition || err == nil && herr != nil {
		return herr
	}
	if err != nil {
		return err
	}
	if a := head.Get(version.AuthorityKey); len(a) > 0 && s.signs != nil {
		s.signs(a[0])
	}
	return judge(s.ours, head)
}
