package bcast

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Open opens the file to copy. Its errors are Slurm's.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refused("Can't open `%s`: %s", path, inWords(err))
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = syscall.ENODEV
	}
	if err != nil {
		_ = f.Close()
		return nil, refused("Can't mmap file `%s`, %s.", path, inWords(err))
	}
	return f, nil
}

// refused returns an error with Slurm's message.
func refused(format string, args ...any) error {
	return &opt.ValueError{Lines: []string{fmt.Sprintf(format, args...)}}
}

// inWords is the system's text for an error.
func inWords(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// Describe prints with -v what is copied.
func Describe(env *command.Env, info os.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	when := func(t syscall.Timespec) string { return time.Unix(t.Unix()).Format("Mon Jan 02 15:04:05 2006") }
	env.Infof("modes    = %o", st.Mode)
	env.Infof("uid      = %d", st.Uid)
	env.Infof("gid      = %d", st.Gid)
	env.Infof("atime    = %s", when(st.Atim))
	env.Infof("mtime    = %s", when(st.Mtim))
	env.Infof("ctime    = %s", when(st.Ctim))
	env.Infof("size     = %d", st.Size)
}

// Compress reads --compress.
func Compress(env *command.Env, value string, given bool) bool {
	switch {
	case !given || strings.EqualFold(value, "lz4"):
		return true
	case !strings.EqualFold(value, "none"):
		env.Errorf("Compression type '%s' unknown, disabling compression support.", value)
	}
	return false
}

// YesNo reads --send-libs.
func YesNo(value string) (yes, ok bool) {
	switch strings.ToLower(value) {
	case "yes", "y", "true", "t", "1", "on":
		return true, true
	case "no", "n", "false", "f", "0", "off":
		return false, true
	}
	return false, false
}

// Ports returns SrunPortRange of slurm.conf, for programs that read no other key.
func Ports(getenv func(string) string) string {
	ports := strings.Trim(client.Settings(getenv, "SrunPortRange")[0], "\"")
	if ports == "0-0" || ports == "0" {
		return ""
	}
	return ports
}

// ExcludedLibraries are the directories of libraries that every host has.
const ExcludedLibraries = "/lib,/usr/lib,/lib64,/usr/lib64"

// LibraryFolder is the directory for the libraries of a copied program.
func LibraryFolder(to string) string { return to + "_libs" }

// Libraries copies the shared libraries of a copied program into a directory beside it, except those below the excluded
// directories. It returns false if there are none, or if they cannot be determined, which it reports.
func (j *Job) Libraries(ctx context.Context, program *File, exclude string) (bool, error) {
	list, err := libraries(ctx, program.Path)
	if err != nil {
		j.Env.Errorf("Cannot autodetect libraries for '%s' with ldd command; still sending the file but ignoring send_libs", program.Path)
		return false, nil
	}
	sent := false
	for _, path := range list {
		if excluded(path, exclude) {
			continue
		}
		if err := j.library(ctx, program, path); err != nil {
			return sent, err
		}
		sent = true
	}
	return sent, nil
}

func (j *Job) library(ctx context.Context, program *File, path string) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return j.Copy(ctx, &File{Path: path, From: f, To: filepath.Join(LibraryFolder(program.To), filepath.Base(path)), Force: true,
		Preserve: program.Preserve, Compress: program.Compress, Folder: true})
}

// libraries calls ldd(1), as Slurm does, because the program's own loader finds them.
func libraries(ctx context.Context, program string) (list []string, err error) {
	if !strings.Contains(program, "/") {
		program = "./" + program
	}
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path := lines.Text()
		if _, found, ok := strings.Cut(path, "=> "); ok {
			path = found
		}
		path, _, _ = strings.Cut(strings.TrimSpace(path), " (0x")
		if filepath.IsAbs(path) {
			list = append(list, path)
		}
	}
	return list, nil
}

// excluded reports whether a library is below one of the directories.
func excluded(path, folders string) bool {
	if strings.EqualFold(folders, "NONE") {
		return false
	}
	for _, dir := range strings.Split(folders, ",") {
		if dir != "" && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
	}
	return false
}
