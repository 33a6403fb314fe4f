package wire

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConfPath: what is named, then what administrators write, then what the node daemon has fetched.
func TestConfPath(t *testing.T) {
	dir := t.TempDir()
	usual, fetched, other := filepath.Join(dir, "usual"), filepath.Join(dir, "fetched"), filepath.Join(dir, "other")
	for _, c := range []struct {
		what       string
		there      []string
		named, job string
		want       string
	}{
		{"named", []string{usual, fetched, other}, other, "", other},
		{"named and missing", []string{usual, fetched}, other, "", other},
		{"of a job from another host", []string{usual, fetched}, other, "7", usual},
		{"of a job from another host, here fetched", []string{fetched}, other, "7", fetched},
		{"of a job from this host", []string{usual, other}, other, "7", other},
		{"of a job, nothing is there", nil, other, "7", other},
		{"not named", []string{usual, fetched}, "", "", usual},
		{"fetched", []string{fetched}, "", "", fetched},
		{"none", nil, "", "", usual},
	} {
		for _, path := range []string{usual, fetched, other} {
			_ = os.Remove(path)
		}
		for _, path := range c.there {
			if err := os.WriteFile(path, []byte("ClusterName=c\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		env := map[string]string{"SLURM_CONF": c.named, "SLURM_JOB_ID": c.job}
		if got := confPath(func(key string) string { return env[key] }, usual, fetched); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
