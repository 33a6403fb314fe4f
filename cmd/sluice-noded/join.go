package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/internal/jointoken"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded"
	"github.com/sluice-hpc/sluice/noded/confine"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
)

// maxAsked bounds the data read from the asking process.
const maxAsked = 1 << 20

// join makes this host join the cluster of --join. noded-root creates the key and stores the answer; an unprivileged process with
// network access does the rest.
func join(c *cli.Context, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	token, err := tokenText(c.String("join"))
	if err != nil {
		return err
	}
	t, err := jointoken.Parse(token)
	if err != nil {
		return err
	}
	if name := c.String("node"); name != "" && name != t.Node {
		return fmt.Errorf("the token is for host %s, not for %s (--node)", t.Node, name)
	}
	id, err := noded.Join(ctx, noded.JoinOptions{Token: token, TLS: c.String("tls"), Log: log, Ask: askApart})
	if err != nil {
		return err
	}
	// A host without its own slurm.conf finds its controllers here.
	known := filepath.Join(c.String("tls"), controllersFile)
	if err := mtls.Write(known, 0o644, []byte(strings.Join(t.Controllers, "\n")+"\n")); err != nil {
		return err
	}
	if c.Bool("join-only") {
		fmt.Printf("host %s has joined: its certificate is in %s\n", id.Name, c.String("tls"))
	}
	if id.Role == mtls.RoleNode && c.String("node") == "" {
		return c.Set("node", id.Name)
	}
	return nil
}

// tokenText returns the value of --join: a token, - for standard input, or @FILE to keep it out of the list of processes.
func tokenText(s string) (string, error) {
	var b []byte
	var err error
	switch file, isFile := strings.CutPrefix(s, "@"); {
	case s == "-":
		b, err = io.ReadAll(io.LimitReader(os.Stdin, maxAsked))
	case isFile:
		b, err = os.ReadFile(file)
	default:
		return s, nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the join token: %w", err)
	}
	return string(b), nil
}

// askApart asks the controller in a separate process.
func askApart(ctx context.Context, q *nodepb.Asking) (*nodepb.Asked, error) {
	in, err := proto.Marshal(q)
	if err != nil {
		return nil, err
	}
	uid, gid, err := linkUser()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{"sluice-noded", "ask", strconv.Itoa(int(uid)), strconv.Itoa(int(gid))}
	cmd.Env, cmd.Dir = confine.Environment(), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &limited{to: &out, left: maxAsked}, newLines(func(line []byte) error {
		_, err := os.Stderr.Write(line)
		return err
	})
	if err := inherit.Start(cmd); err != nil {
		return nil, fmt.Errorf("cannot start the process that contacts the controller: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the process that contacts the controller has failed: %w", err)
	}
	a := &nodepb.Asked{}
	if err := proto.Unmarshal(out.Bytes(), a); err != nil {
		return nil, fmt.Errorf("cannot read the controller's answer: %w", err)
	}
	return a, nil
}

// limited accepts a limited number of bytes.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, io.ErrShortBuffer
	}
	return l.to.Write(p)
}

// askMain is the asking process: ask UID GID, which drops its privileges and executes itself with one more argument.
func askMain(args []string) {
	if err := askRun(args); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-noded ask:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func askRun(args []string) error {
	if len(args) == 2 {
		uid, gid, err := idsOf(args)
		if err != nil {
			return err
		}
		return confine.Link(uid, gid, append(os.Args, confined), os.Environ())
	}
	if len(args) != 3 || args[2] != confined {
		return fmt.Errorf("%q: internal command, run only by the node daemon", args)
	}
	if err := confine.Seal(); err != nil {
		return err
	}
	in, err := io.ReadAll(io.LimitReader(os.Stdin, maxAsked))
	if err != nil {
		return err
	}
	out, err := noded.AskFrom(context.Background(), in)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
