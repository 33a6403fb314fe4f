package srun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-hpc/sluice/client/bcast"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/submission"
)

// broadcast is --bcast: the program is first copied to the job's nodes and executed from there.
type broadcast struct {
	source string
	byNode bool   // each node gets its own file name, because the directory may be shared
	libs   string // directory of the program's libraries; "" if they are not sent
}

// checkBcast finds the program to copy.
func (r *run) checkBcast() error {
	if !r.req.Run.Bcast {
		return nil
	}
	if r.req.Run.MultiProg {
		return &opt.ValueError{Lines: []string{"--bcast is not supported with --multi-prog"}, Exit: 1,
			Hint: "copy the programs with sbcast"}
	}
	if r.req.Spec.RunIn != nil {
		return &opt.ValueError{Lines: []string{"--bcast is not supported with containers"}, Exit: 1,
			Hint: "the copy is on the node, not in the container: use sbcast to a directory of --container-mounts"}
	}
	path, ok := findProgram(r.argv[0], r.env.Getenv("PATH"), r.req.Dir)
	if !ok {
		return &opt.ValueError{Lines: []string{"Can not execute " + r.argv[0]}, Fatal: true, Exit: 1,
			Hint: "--bcast copies a program that this host can execute"}
	}
	r.bcast.source = path
	return nil
}

// findProgram searches for a program on this host.
func findProgram(name, path, dir string) (string, bool) {
	if strings.Contains(name, "/") {
		name = absolute(dir, name)
		return name, executable(name)
	}
	for _, in := range filepath.SplitList(path) {
		if at := absolute(dir, filepath.Join(in, name)); executable(at) {
			return at, true
		}
	}
	at := filepath.Join(dir, name)
	return at, executable(at)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// sendProgram copies the program and makes the tasks execute the copy.
func (r *run) sendProgram(ctx context.Context) error {
	if !r.req.Run.Bcast {
		return nil
	}
	failed := func(err error) error {
		var i *submission.Interrupted
		if errors.As(err, &i) {
			return err
		}
		lines := []string{fmt.Sprintf("Failed to broadcast '%s'. Step launch aborted.", r.bcast.source)}
		hint := err.Error()
		if _, told := err.(*bcast.Failure); told {
			hint = ""
		}
		return &opt.ValueError{Lines: lines, Hint: hint, Fatal: true, Exit: 1}
	}
	nodes, err := r.nodesForProgram(ctx)
	if err != nil {
		return err
	}
	f, err := bcast.Open(r.bcast.source)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && r.req.Verbose > 0 {
		bcast.Describe(r.env, info)
		r.env.Infof("jobid      = %d", r.jobID())
		r.env.Infof("node_list  = %s", strings.Join(nodes, ","))
	}
	o := &r.req.Run
	job := &bcast.Job{Env: r.env, Sender: r.sender, Client: r.client, ID: r.jobID(), Nodes: nodes, Ports: r.conf.portRange,
		Signals: r.sig.c, Verbose: r.req.Verbose > 1}
	file := &bcast.File{Path: r.bcast.source, From: f, Force: true, Preserve: true,
		Compress: o.Compress && bcast.Compress(r.env, o.CompressBy, o.CompressGiven)}
	file.To = absolute(r.req.Dir, o.BcastTo)
	if o.BcastTo == "" || strings.HasSuffix(o.BcastTo, "/") {
		file.To = filepath.Join(file.To, fmt.Sprintf("slurm_bcast_%d", r.jobID()))
		file.Numbered, file.ByNode = true, true
	}
	if err := job.Copy(ctx, file); err != nil {
		return failed(err)
	}
	if o.SendLibs {
		exclude := o.BcastExclude
		if exclude == "" {
			exclude = bcast.ExcludedLibraries
		}
		sent, err := job.Libraries(ctx, file, exclude)
		if err != nil {
			return failed(err)
		}
		if sent {
			r.bcast.libs = bcast.LibraryFolder(file.To)
		}
	}
	r.argv = append([]string{file.To}, r.argv[1:]...)
	r.bcast.byNode = file.ByNode
	return nil
}

// nodesForProgram returns all nodes of the job: those of the step are not known yet.
func (r *run) nodesForProgram(ctx context.Context) (names []string, err error) {
	job := r.job
	if r.alloc == nil {
		reply, err := r.client.WaitAllocation(ctx, &msg.WaitAllocationRequest{JobId: r.jobID()})
		if err != nil {
			return nil, err
		}
		job = reply.GetJob()
	}
	for _, a := range job.GetAlloc() {
		if !a.GetEnded() {
			names = append(names, a.GetNode())
		}
	}
	return names, nil
}

// notSent reports why the program was not copied.
func (r *run) notSent(err error) int {
	var v *opt.ValueError
	if errors.As(err, &v) {
		return r.env.Refuse(err)
	}
	return r.refusedStep(err)
}
