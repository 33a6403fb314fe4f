package state

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

func textsOf(t rapid.TB, uid uint32, script []byte, env ...string) Texts {
	t.Helper()
	texts, err := PackTexts(uid, script, env)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// textWorld is a state that is committed to a journal, and what it should hold.
type textWorld struct {
	t     *rapid.T
	store *journal.Memory
	view  *View
	want  map[uint32]string // job -> its script
}

// commit takes one transaction through, or has it refused as on a full disk.
func (w *textWorld) commit(refused bool, change func(*Tx)) {
	tx := Begin(w.view, 1)
	change(tx)
	if refused {
		w.view.Reindex()
		return
	}
	rows, err := tx.Rows()
	if err == nil {
		err = w.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.view, _ = tx.Freeze()
}

// check: exactly the texts that some job names are stored, each job has its own, and the counts are those of a fresh start.
func (w *textWorld) check() {
	stored := map[string]bool{}
	if _, err := w.store.Load(func(b journal.Bucket, key, _ []byte) error {
		if b == journal.Texts {
			stored[string(key)] = true
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	named := map[string]bool{}
	for j := range w.view.Jobs.All() {
		script, env, err := ReadTexts(w.store.Get, j)
		if err != nil || string(script) != w.want[j.Id] || len(env) != 1 || env[0] != "UID="+fmt.Sprint(j.Spec.Uid) {
			w.t.Fatalf("job %d has the script %.20q and %q, %v; want %.20q", j.Id, script, env, err, w.want[j.Id])
		}
		named[string(j.ScriptKey)], named[string(j.EnvKey)] = true, true
	}
	if !maps.Equal(stored, named) {
		w.t.Fatalf("%d texts are stored, %d are named", len(stored), len(named))
	}
	fresh, err := Load(&Config{Settings: w.view.Settings}, w.store, "c", 1)
	if err != nil {
		w.t.Fatal(err)
	}
	if !maps.Equal(fresh.writer.texts, w.view.writer.texts) || !maps.Equal(fresh.writer.bytes, w.view.writer.bytes) {
		w.t.Fatalf("counted are %v and %v, after a restart %v and %v", w.view.writer.texts, w.view.writer.bytes, fresh.writer.texts,
			fresh.writer.bytes)
	}
}

// TestTextsAreStoredOnce and go with the last job that has them, after any submissions, splits, purges and refusals.
func TestTextsAreStoredOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &textWorld{t: rt, store: journal.NewMemory(), view: New(testConfig(0, 0), "c", 1), want: map[uint32]string{}}
		for range rapid.IntRange(1, 30).Draw(rt, "commits") {
			refused := rapid.IntRange(0, 4).Draw(rt, "refused") == 0
			want := maps.Clone(w.want)
			w.commit(refused, func(tx *Tx) {
				for range rapid.IntRange(1, 4).Draw(rt, "events") {
					ids := slices.Sorted(maps.Keys(want))
					if len(ids) == 0 || rapid.Bool().Draw(rt, "submit") {
						id, uid := tx.NextJobID(), rapid.Uint32Range(1, 2).Draw(rt, "uid")
						script := strings.Repeat(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "script"),
							rapid.SampledFrom([]int{1, 5000}).
								Draw(rt, "length"))
						j := &pb.JobRecord{Id: id, ArrayJobId: id, ArrayTasks: "0-9", Spec: &pb.JobSpec{Uid: uid}}
						texts := textsOf(rt, uid, []byte(script), "UID="+fmt.Sprint(uid))
						texts.Name(j)
						tx.Emit(JobSubmitted{Job: j, Texts: texts})
						want[id] = script
						continue
					}
					id := rapid.SampledFrom(ids).Draw(rt, "job")
					if rapid.Bool().Draw(rt, "split") {
						rest, part := CloneJob(tx.Job(id)), CloneJob(tx.Job(id))
						part.Id = tx.NextJobID()
						tx.Emit(ArraySplit{Rest: rest, Part: part})
						want[part.Id] = want[id]
						continue
					}
					tx.Emit(JobForgotten{ID: id})
					delete(want, id)
				}
			})
			if !refused {
				w.want = want
			}
			w.check()
		}
	})
}

// TestTextsOfEverySize come back as they were, and take less where they can; a damaged one is an error.
func TestTextsOfEverySize(t *testing.T) {
	noise := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	for _, content := range [][]byte{{0}, []byte("#!/bin/sh\ntrue\n"), bytes.Repeat([]byte("echo\n"), 1<<20), noise, noise[:smallText]} {
		text := packText(1, content)
		if got, err := unpackText(text.stored); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes: %d came back, %v", len(content), len(got), err)
		}
		if n := text.Key.size(); n != int64(len(text.stored)) || n > int64(len(content)+1) {
			t.Errorf("%d bytes take %d, and the key says %d", len(content), len(text.stored), n)
		}
		if other := packText(2, content); other.Key == text.Key {
			t.Error("two users share a text")
		}
	}
	if n := packText(1, bytes.Repeat([]byte("echo\n"), 1<<20)).Key.size(); n > 1<<12 {
		t.Errorf("5 MiB of one word take %d bytes", n)
	}
	bomb := encoder().EncodeAll(make([]byte, 2*maxTextBytes), []byte{zstdText})
	for _, stored := range [][]byte{nil, {2, 1}, {zstdText, 1, 2, 3}, bomb} {
		if _, err := unpackText(stored); err == nil {
			t.Errorf("%.10x… (%d bytes) was decoded", stored, len(stored))
		}
	}
}
