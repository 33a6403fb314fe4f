package view

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// DocumentKind is what --json and --yaml ask for; the zero value is a table.
type DocumentKind struct {
	Wanted, Yaml bool
}

// DocumentOption reads --json[=PARSER] and --yaml[=PARSER]. "list" names the parsers there are and ends the command.
func DocumentOption(e *command.Env, name, value string) (DocumentKind, error) {
	switch {
	case strings.EqualFold(value, "list"):
		_, _ = e.Stdout.Write([]byte("Possible data_parser plugins:\n" + jsonout.Parser + "\n"))
		return DocumentKind{}, command.ExitCode(0)
	case !jsonout.CheckParser(value):
		return DocumentKind{}, e.Failf("Invalid data_parser plugin: %s (there is %s, with +fast or without)", format.Escape(value),
			jsonout.Parser)
	}
	return DocumentKind{Wanted: true, Yaml: name == "yaml"}, nil
}

// Document is a document that is being written. The list that it is about is begun when its first element, or its end, comes, so
// that a query that fails at once leaves nothing on standard output.
type Document struct {
	*jsonout.Writer
	env   *command.Env
	key   string
	begun bool
}

// NewDocument begins a document whose subject is the list key. SLURM_JSON=compact leaves out blanks (squeue(1), ENVIRONMENT).
func NewDocument(e *command.Env, kind DocumentKind, key string) *Document {
	compact := strings.EqualFold(e.Getenv("SLURM_JSON"), "compact")
	return &Document{Writer: jsonout.New(e.Stdout, kind.Yaml, compact), env: e, key: key}
}

// Begin opens the list.
func (d *Document) Begin() {
	if !d.begun {
		d.begun = true
		d.List(d.key)
	}
}

// Finish closes the list, lets more write what stands behind it, and ends the document. A failure that comes after a part of
// the document has gone out is written into its "errors", so that a reader always has a whole document.
func (d *Document) Finish(failed error, more func()) int {
	d.Begin()
	d.End()
	if more != nil {
		more()
	}
	var faults []jsonout.Fault
	if failed != nil {
		text, diagnosis := command.Phrase(failed)
		faults = append(faults, jsonout.Fault{Description: diagnosis, Number: int64(client.ProblemOf(failed).GetCode()), Error: text,
			Source: d.env.Name})
	}
	d.Tail(Meta(d.env), faults, nil)
	if d.Close() != nil || failed != nil {
		return 1
	}
	return 0
}

// Meta is what a document says of the command that made it.
func Meta(e *command.Env) jsonout.Meta {
	m := jsonout.Meta{Cluster: e.ClusterName(), Command: e.Args, Source: callersTerminal(), User: passwd.Self().Name,
		Storage: "accounting_storage/sluice"}
	gid := strconv.Itoa(os.Getgid())
	if m.Group = passwd.GroupName(uint32(os.Getgid())); m.Group == "" {
		m.Group = gid
	}
	return m
}

// callersTerminal is the name of the terminal that the command was called on, "" when there is none.
func callersTerminal() string {
	for _, fd := range []string{"0", "1", "2"} {
		if name, err := os.Readlink("/proc/self/fd/" + fd); err == nil &&
			(strings.HasPrefix(name, "/dev/pts/") || strings.HasPrefix(name, "/dev/tty")) {
			return name
		}
	}
	return ""
}

// ReservationsDocument is the document of scontrol show reservation and sinfo -T.
func ReservationsDocument(e *command.Env, kind DocumentKind, list []*msg.ReservationRecord, nowNS int64) int {
	out := NewDocument(e, kind, "reservations")
	out.Begin()
	for _, r := range list {
		doc.WriteReservation(out.Writer, r)
	}
	return out.Finish(nil, func() { out.Seconds("last_update", nowNS) })
}

// NodesByName are the nodes, for what a document says of a job's part of them; nil when they cannot be had.
func NodesByName(ctx context.Context, c *client.Client) map[string]*msg.NodeRecord {
	nodes := map[string]*msg.NodeRecord{}
	if err := EachNode(ctx, c, format.NeedsOfPlaces().AskNodes(&msg.NodesRequest{}), &format.Context{},
		func(n *msg.NodeRecord) { nodes[n.GetName()] = n }); err != nil {
		return nil
	}
	return nodes
}
