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

// DocumentKind is the format of --json or --yaml; the zero value is a table.
type DocumentKind struct {
	Wanted, Yaml bool
}

// DocumentOption reads --json[=PARSER] and --yaml[=PARSER]. "list" prints the available parsers and ends the command.
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

// Document writes a document. It opens the main list at the first element or at the end, so a query that fails at once prints
// nothing.
type Document struct {
	*jsonout.Writer
	env   *command.Env
	key   string
	begun bool
}

// NewDocument starts a document with the main list key. SLURM_JSON=compact removes blanks (squeue(1), ENVIRONMENT).
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

// Finish closes the list, calls more to write what follows it, and ends the document. If a part has already been written, a later
// failure goes into its "errors", so that a reader always gets a complete document.
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

// Meta describes the command that writes the document.
func Meta(e *command.Env) jsonout.Meta {
	m := jsonout.Meta{Cluster: e.ClusterName(), Command: e.Args, Source: callersTerminal(), User: passwd.Self().Name,
		Storage: "accounting_storage/sluice"}
	gid := strconv.Itoa(os.Getgid())
	if m.Group = passwd.GroupName(uint32(os.Getgid())); m.Group == "" {
		m.Group = gid
	}
	return m
}

// callersTerminal returns the name of the terminal on which the command was called, "" if there is none.
func callersTerminal() string {
	for _, fd := range []string{"0", "1", "2"} {
		if name, err := os.Readlink("/proc/self/fd/" + fd); err == nil &&
			(strings.HasPrefix(name, "/dev/pts/") || strings.HasPrefix(name, "/dev/tty")) {
			return name
		}
	}
	return ""
}

// ReservationsDocument prints the document of scontrol show reservation and sinfo -T.
func ReservationsDocument(e *command.Env, kind DocumentKind, list []*msg.ReservationRecord, nowNS int64) int {
	out := NewDocument(e, kind, "reservations")
	out.Begin()
	for _, r := range list {
		doc.WriteReservation(out.Writer, r)
	}
	return out.Finish(nil, func() { out.Seconds("last_update", nowNS) })
}

// NodesByName returns the nodes, from which a document derives a job's share of each; nil if they are not available.
func NodesByName(ctx context.Context, c *client.Client) map[string]*msg.NodeRecord {
	nodes := map[string]*msg.NodeRecord{}
	if err := EachNode(ctx, c, format.NeedsOfPlaces().AskNodes(&msg.NodesRequest{}), &format.Context{},
		func(n *msg.NodeRecord) { nodes[n.GetName()] = n }); err != nil {
		return nil
	}
	return nodes
}
