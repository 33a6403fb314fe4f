package hosts

import (
	"context"
	"flag"
	"fmt"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

const certsUsage = `usage: sluice certs [options]

Lists the certificate authority of the cluster and the certificates that it issued. For root and SlurmUser, on the controller.

STATE is valid, expired or revoked. SEEN is the time when a host last used it since the controller started, or now. FROM is its origin: a
token, a renewal, sluice-ctld issue, or only its use by the host. A host renews its certificate after two thirds of its life and
keeps the old one until it expires.

Options:
  -a, --all        also those that have expired
  -h, --noheader   without headings
  --help           this text

Example:
  sluice certs
`

// Certs runs `sluice certs`.
func Certs(env *command.Env, args []string) int {
	return main(env, "certs", certsUsage, map[string]verb{"": {usage: certsUsage, run: listCertificates,
		flags: func(f *flag.FlagSet, o *options) {
			noHeader(f, o)
			f.BoolVar(&o.all, "a", false, "")
			f.BoolVar(&o.all, "all", false, "")
		}}}, args)
}

func listCertificates(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	r, err := c.Certificates(ctx, &msg.CertificatesRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "EXPIRES", "SEEN", "AUTHORITY", "FROM", "SERIAL"}}
	for _, x := range r.Certificates {
		if x.State == "expired" && !o.all && !x.Connected {
			continue
		}
		seen := shortTime(x.SeenNs)
		if x.Connected {
			seen = "now"
		}
		rows = append(rows, []string{format.Escape(x.Name), x.Role, x.State, shortTime(x.ExpiresNs), seen, authority(x.Authority), x.Origin,
			x.Serial})
	}
	if err := table(env.Stdout, o.bare, rows); err != nil || o.bare {
		return err
	}
	for _, a := range r.Authorities {
		what := "is accepted until it is dropped (sluice-ctld authority --drop-old)"
		if a.Signs {
			what = "signs"
		}
		if _, err := fmt.Fprintf(env.Stdout, "\nauthority %s %s; %q, until %s", a.Id, what, a.Name, shortTime(a.ExpiresNs)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(env.Stdout)
	return err
}

func authority(id string) string {
	if id == "" {
		return "-"
	}
	return id
}
