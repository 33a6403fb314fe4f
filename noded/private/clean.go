package private

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// marker is the prefix of names that Remove is about to delete.
const marker = ".ended-"

// ofStep matches the names of steps. Nothing else is touched, wherever BasePath may lead.
var ofStep = regexp.MustCompile(`^job_\d+\.\d+(\.\d+)?$`)

// Remove deletes a step's files below BasePath, without following links that a user has made. Once ctx ends, the rest is left to
// Purge.
func Remove(ctx context.Context, base, name string) error {
	if !ofStep.MatchString(name) {
		return nil
	}
	root, err := openBase(base)
	if err != nil {
		return ignoreAbsent(err)
	}
	defer root.Close()
	if err := root.Rename(name, marker+name); err != nil { // at once, out of the way of a step with the same name
		return ignoreAbsent(err)
	}
	return removeAll(ctx, root, marker+name)
}

// Sweep marks everything below BasePath that belongs to no step that keep knows: leftovers after a node lost its power, or its
// spool. Purge deletes it, which may take long.
func Sweep(base string, keep func(name string) bool) error {
	return each(base, func(root *os.Root, name string) error {
		if keep(name) || !ofStep.MatchString(name) {
			return nil
		}
		return root.Rename(name, marker+name)
	})
}

// Purge deletes what Sweep and an interrupted Remove have marked, until ctx ends.
func Purge(ctx context.Context, base string) error {
	return each(base, func(root *os.Root, name string) error {
		if step, ok := strings.CutPrefix(name, marker); !ok || !ofStep.MatchString(step) || ctx.Err() != nil {
			return nil
		}
		return removeAll(ctx, root, name)
	})
}

func each(base string, do func(*os.Root, string) error) error {
	root, err := openBase(base)
	if err != nil {
		return ignoreAbsent(err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, do(root, e.Name()))
	}
	return err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
