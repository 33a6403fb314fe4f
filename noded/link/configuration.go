package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// firstWait is how long a controller may take to answer a host that has no configuration.
const firstWait = 30 * time.Second

// Configurations delivers the controller's current configuration and each later one until ctx ends. It is for hosts that are not
// nodes, or not yet: nodes get it with their orders.
func Configurations(ctx context.Context, o Options, take func(*pb.Configuration)) {
	o.keepTrying(ctx, "no configuration from the controller: will keep trying", func(addr string) (worked, told bool, err error) {
		worked, err = configurations(ctx, o, addr, take)
		return worked, false, err
	})
}

func configurations(ctx context.Context, o Options, addr string, take func(*pb.Configuration)) (got bool, err error) {
	conn, err := Dial(o, addr)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(firstWait, func() {
		cancel(fmt.Errorf("%s did not send the configuration within %v", addr, firstWait))
	})
	defer late.Stop()
	stream, err := nodepb.NewNodeAPIClient(conn).Configuration(ctx, &nodepb.ConfigurationRequest{})
	for err == nil {
		var c *pb.Configuration
		if c, err = stream.Recv(); err == nil {
			if !late.Stop() && !got {
				return false, explain(ctx, addr, errors.New("too late"))
			}
			got = true
			take(c)
		}
	}
	return got, explain(ctx, addr, err)
}
