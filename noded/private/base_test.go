package private

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestBaseOfAUser: in a folder that everybody may write to, users have made what root is about to use.
func TestBaseOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	const user = 4711
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spool, sticky, victim, home := dir+"/spool", dir+"/sticky", dir+"/victim", dir+"/home"
	for _, d := range []string{spool, sticky, victim, home, sticky + "/users", sticky + "/open", home + "/open"} {
		must(os.Mkdir(d, 0o755))
	}
	for _, d := range []string{sticky, home + "/open"} {
		must(os.Chmod(d, 0o777|os.ModeSticky))
	}
	must(os.Chmod(sticky+"/open", 0o777))
	must(os.Symlink(victim, sticky+"/link"))
	must(os.WriteFile(sticky+"/file", nil, 0o600))
	must(os.Chown(sticky+"/users", user, user))
	must(os.Chown(home, user, user))
	must(os.Symlink(sticky, dir+"/way"))
	for _, c := range []struct{ base, dir, want string }{
		{sticky + "/users", "/var/tmp", "belongs to uid 4711"},
		{sticky + "/open", "/var/tmp", "is writable by others"},
		{sticky + "/link", "/var/tmp", "is not a directory"},
		{sticky + "/file", "/var/tmp", "is not a directory"},
		{sticky + "/users/n1", "/var/tmp", "belongs to uid 4711"},
		{sticky + "/users/made/n1", "/var/tmp", "belongs to uid 4711"},
		{home + "/made/n1", "/var/tmp", "belongs to uid 4711"},
		{dir + "/good/n1", home + "/open", "belongs to uid 4711"},
		{sticky + "/good/n1", dir + "/way", "is in it"},
	} {
		p, whys := Available(&pb.Privacy{Base: c.base, Dirs: []string{c.dir}, MakeBase: true}, spool)
		if len(p.Dirs) > 0 || len(whys) != 1 || !strings.Contains(whys[0].Error(), c.want) {
			t.Errorf("%+v: %v, %v", c, p, whys)
		}
	}
	for _, made := range []string{sticky + "/users/made", home + "/made"} {
		if _, err := os.Lstat(made); err == nil {
			t.Errorf("%s was made", made)
		}
	}
	// What is decided is what is used later, wherever links lead then; and it is looked at again.
	if real, base, err := usable(&pb.Privacy{Base: dir + "/way/own/n1", MakeBase: true}, "/var/tmp", spool); err != nil ||
		real != "/var/tmp" || base != sticky+"/own/n1" {
		t.Errorf("%q %q %v", real, base, err)
	}
	if real, _, err := usable(&pb.Privacy{Base: dir + "/own/n1", MakeBase: true}, dir+"/way", spool); err != nil || real != sticky {
		t.Errorf("%q %v", real, err)
	}
	must(os.Mkdir(victim+"/job_1.1", 0o700))
	for _, base := range []string{sticky + "/users", sticky + "/link"} {
		if _, err := makeOwn(base, "job_1.1", "0", false); err == nil {
			t.Errorf("a job's folder was made in %s", base)
		}
		if Remove(t.Context(), base, "job_1.1") == nil || Sweep(base, func(string) bool { return false }) == nil {
			t.Errorf("jobs' folders were deleted in %s", base)
		}
	}
	entries, err := os.ReadDir(victim)
	if err != nil || !slices.Equal([]string{"job_1.1"}, names(entries)) {
		t.Errorf("behind a user's link: %v %v", entries, err)
	}
	own, err := makeOwn(sticky+"/own/n1", "job_1.1", "0", false)
	if info, e := os.Lstat(own); err != nil || e != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 ||
		own != filepath.Join(sticky, "own/n1/job_1.1/0") {
		t.Errorf("%q: %v %v", own, err, e)
	}
}

func names(entries []os.DirEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
