package cli

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
)

// documentKind is what --json and --yaml ask for; the zero value is a table.
type documentKind struct {
	wanted, yaml bool
}

// documentOption reads --json[=PARSER] and --yaml[=PARSER]. "list" names the parsers there are and ends the command.
func (e *Env) documentOption(name, value string) (documentKind, error) {
	switch {
	case strings.EqualFold(value, "list"):
		_, _ = e.Stdout.Write([]byte("Possible data_parser plugins:\n" + jsonout.Parser + "\n"))
		return documentKind{}, exitEarly(0)
	case !jsonout.CheckParser(value):
		return documentKind{}, e.fail("Invalid data_parser plugin: %s (there is %s, with +fast or without)", format.Escape(value), jsonout.Parser)
	}
	return documentKind{wanted: true, yaml: name == "yaml"}, nil
}

// document is a document that is being written. The list that it is about is begun when its first element, or its end, comes, so
// that a query that fails at once leaves nothing on standard output.
type document struct {
	*jsonout.Writer
	env   *Env
	key   string
	begun bool
}

// newDocument begins a document whose subject is the list key. SLURM_JSON=compact leaves out blanks (squeue(1), ENVIRONMENT).
func (e *Env) newDocument(kind documentKind, key string) *document {
	compact := strings.EqualFold(e.Getenv("SLURM_JSON"), "compact")
	return &document{Writer: jsonout.New(e.Stdout, kind.yaml, compact), env: e, key: key}
}

// begin opens the list.
func (d *document) begin() {
	if !d.begun {
		d.begun = true
		d.List(d.key)
	}
}

// finish closes the list, lets more write what stands behind it, and ends the document. A failure that comes after a part of
// the document has gone out is written into its "errors", so that a reader always has a whole document.
func (d *document) finish(failed error, more func()) int {
	d.begin()
	d.End()
	if more != nil {
		more()
	}
	var faults []jsonout.Fault
	if failed != nil {
		text, diagnosis := phrase(failed)
		faults = append(faults, jsonout.Fault{Description: diagnosis, Number: int64(client.ProblemOf(failed).GetCode()), Error: text, Source: d.env.Name})
	}
	d.Tail(d.env.meta(), faults, nil)
	if d.Close() != nil || failed != nil {
		return 1
	}
	return 0
}

// meta is what a document says of the command that made it.
func (e *Env) meta() jsonout.Meta {
	m := jsonout.Meta{Cluster: e.clusterName(), Command: e.Args, Source: callersTerminal(), User: self().Name, Storage: "accounting_storage/sluice"}
	gid := strconv.Itoa(os.Getgid())
	if m.Group = accounts.GroupName(uint32(os.Getgid())); m.Group == "" {
		m.Group = gid
	}
	return m
}

// callersTerminal is the name of the terminal that the command was called on, "" when there is none.
func callersTerminal() string {
	for _, fd := range []string{"0", "1", "2"} {
		if name, err := os.Readlink("/proc/self/fd/" + fd); err == nil && (strings.HasPrefix(name, "/dev/pts/") || strings.HasPrefix(name, "/dev/tty")) {
			return name
		}
	}
	return ""
}

// reservationsDocument is the document of scontrol show reservation and sinfo -T.
func (e *Env) reservationsDocument(kind documentKind, list []*pb.ReservationRecord, nowNS int64) int {
	doc := e.newDocument(kind, "reservations")
	doc.begin()
	for _, r := range list {
		format.WriteReservation(doc.Writer, r)
	}
	return doc.finish(nil, func() { doc.Seconds("last_update", nowNS) })
}

// nodesByName are the nodes, for what a document says of a job's part of them; nil when they cannot be had.
func nodesByName(ctx context.Context, c *client.Client) map[string]*pb.NodeRecord {
	nodes := map[string]*pb.NodeRecord{}
	if err := eachNode(ctx, c, format.NeedsOfPlaces().AskNodes(&pb.NodesRequest{}), &format.Context{}, func(n *pb.NodeRecord) { nodes[n.GetName()] = n }); err != nil {
		return nil
	}
	return nodes
}
