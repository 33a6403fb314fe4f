package enrol

import (
	"context"
	"fmt"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

// CertsVerb is `sluice certs`.
func CertsVerb() *command.Verb {
	return &command.Verb{
		Name: "certs", Line: "show the certificates of hosts",
		Page: command.Page{
			About: `Lists the certificate authority of the cluster and the certificates that it issued. For root and SlurmUser, on the
controller.

STATE is valid, expired or revoked. SEEN is the time when a host last used it since the controller started, or now. FROM is its
origin: a token, a renewal, sluice-ctld issue, or only its use by the host. A host renews its certificate after two thirds of
its life and keeps the old one until it expires.`,
			Options:  []command.Option{{Name: opt.Name{Long: "all", Short: 'a'}, Help: "also those that have expired"}, noHeader},
			Examples: "  sluice certs\n",
		},
		Run: connected(listCertificates),
	}
}

func listCertificates(ctx context.Context, call *command.Call, c *client.Client) error {
	r, err := c.Certificates(ctx, &msg.CertificatesRequest{})
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "EXPIRES", "SEEN", "AUTHORITY", "FROM", "SERIAL"}}
	for _, x := range r.Certificates {
		if x.State == "expired" && !call.Given("all") && !x.Connected {
			continue
		}
		seen := moment(x.SeenNs)
		if x.Connected {
			seen = "now"
		}
		rows = append(rows, []string{format.Escape(x.Name), x.Role, x.State, dash(moment(x.ExpiresNs)), dash(seen), dash(x.Authority),
			x.Origin, x.Serial})
	}
	bare := call.Given("noheader")
	if err := table(call.Stdout, bare, rows); err != nil || bare {
		return err
	}
	for _, a := range r.Authorities {
		does, until := "is accepted until it is dropped (sluice-ctld authority --drop-old)", ""
		if a.Signs {
			does = "signs"
		}
		if a.ExpiresNs != 0 {
			until = ", until " + moment(a.ExpiresNs)
		}
		if _, err := fmt.Fprintf(call.Stdout, "\nauthority %s %s; %q%s", a.Id, does, a.Name, until); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(call.Stdout)
	return err
}
