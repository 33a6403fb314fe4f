package crashtest

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// schemaPrograms builds the programs of this tree as those of a release that writes the next schema.
func schemaPrograms() (dir string, err error) {
	return otherPrograms("schema", "ctld/ctld.go", func(source []byte) ([]byte, error) {
		const opened = "journal.Options{Log: d.log,"
		if bytes.Count(source, []byte(opened)) != 1 || bytes.Contains(source, []byte("Schema:")) {
			return nil, fmt.Errorf("cannot find %q without a schema", opened)
		}
		return bytes.Replace(source, []byte(opened), []byte(`journal.Options{Log: d.log, Schema: 2,
		Migrate: func(_ uint32, _ journal.Bucket, _, value []byte) ([]byte, error) { return value, nil },`), 1), nil
	})
}

// TestSchemaBack: a release with another schema takes over the jobs of this one. The way back is the one that the older controller's
// refusal and docs/administrators.md say: it has changed nothing, and with the backup that the newer one has kept all jobs are there that
// were there before the upgrade. Those that ran go on; one that ended meanwhile is NODE_FAIL. No id is given out twice.
func TestSchemaBack(t *testing.T) {
	next, err := schemaPrograms()
	must(t, err)
	u := &upgrade{cluster: newCluster(t, 1)}
	u.start()
	long, meanwhile := u.begin("n1"), u.begin("n1")
	held := u.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, u.witness("held"))
	done := u.submit(plainJob, nil, u.witness("done"), "3")
	u.wait(done)
	before := u.cluster.jobs()

	u.install("ctld", next)
	u.stop()
	u.startCtld()
	u.awaitNodes()
	u.compare("under the newer schema", before)
	u.ends(meanwhile, "under the newer schema")
	last := u.submit(plainJob, func(s *msg.JobSpec) { s.Hold = true }, u.witness("late"))
	newer := u.cluster.jobs()

	u.install("ctld", bin)
	u.stop()
	sum := u.database()
	d := u.launchCtld()
	u.await("the older controller has ended", d.Ended)
	said := d.Tail(1)
	if !strings.Contains(said, "its schema is 2") || !strings.Contains(said, "written by a newer version") {
		t.Errorf("the older controller says: %s", said)
	}
	_, line, found := strings.Cut(said, "sluice-ctld restore ")
	if !found {
		t.Fatalf("the older controller does not say how to go back: %s", said)
	}
	if u.database() != sum {
		t.Error("the older controller has changed the database that it refuses")
	}
	// It does the newer one no harm.
	u.install("ctld", next)
	u.startCtld()
	u.awaitNodes()
	u.compare("the newer release again", newer)
	u.install("ctld", bin)
	u.stop()

	out, err := exec.Command(filepath.Join(bin, "sluice-ctld"), append([]string{"restore"}, strings.Fields(line)...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	u.startCtld()
	u.awaitNodes()
	after := u.cluster.jobs()
	for id := range before {
		if after[id] == nil {
			t.Errorf("job %d is lost", id)
		}
	}
	if j := after[held]; j.GetState() != msg.JobState_JOB_PENDING || !j.GetSpec().GetHold() {
		t.Errorf("the job that was held is %v", j)
	}
	if j := after[done]; j.GetState() != msg.JobState_JOB_FAILED || j.GetExitStatus() != 3<<8 {
		t.Errorf("the job that had ended is %v", j)
	}
	u.ends(long, "has run under both")
	if id := u.submit(plainJob, nil, u.witness("new"), "0"); id <= last {
		t.Errorf("a new job has the id %d; up to %d were given out", id, last)
	}
	if j := u.wait(meanwhile.id); j.State != msg.JobState_JOB_NODE_FAIL {
		t.Errorf("the job that ended under the newer schema, and was running before, is %v", j)
	}
	seen, err := readWitness(meanwhile.witness)
	must(t, err)
	if err := ranOnce(seen); err != nil {
		t.Errorf("the job that ended under the newer schema: %v", err)
	}
	u.settled()
	u.nodesUp()
}

// stop ends the controller.
func (u *upgrade) stop() {
	u.t.Helper()
	if !u.ctld.signal(15) {
		u.t.Fatal("the controller does not end")
	}
}
