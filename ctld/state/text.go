package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Scripts and environments are stored apart from the jobs, compressed, and once for each user and content: a record names them by their
// keys. The writer's index counts the records that name a text, and is computed from the records at every start. The row of a text is
// written with the first record that names it and deleted with the last, in the same commit, so no crash leaves one too many or too few.
//
// Texts are kept by user and not by content alone: so a user's bytes are exact, and the cost of a submission reveals nothing about others'
// texts.

// TextKey names a stored text: SHA-256 over owner and content, its last four bytes replaced by the text's size.
type TextKey [sha256.Size]byte

// keyOf reads the key in a record; ok is false where it has none.
func keyOf(b []byte) (k TextKey, ok bool) { return k, copy(k[:], b) == len(k) }

// size returns the size of the text in the database.
func (k TextKey) size() int64 { return int64(binary.BigEndian.Uint32(k[sha256.Size-4:])) }

// Text is a text in its stored form. The zero value is no text.
type Text struct {
	Key    TextKey
	stored []byte // the first byte says how the rest is encoded
}

// Texts are the script and environment of a job.
type Texts struct{ Script, Env Text }

// Encodings of a stored text, in its first byte.
const (
	plainText = 0
	zstdText  = 1
)

// smallText is the size below which compression does not pay; maxTextBytes exceeds the limit of any script or environment in a submission.
const (
	smallText    = 256
	maxTextBytes = 16 << 20
)

// Compression was chosen by measurement, for scripts of 2 KiB to 0.5 MiB and environments of 5 KiB: zstd at its fastest level takes half
// the time of flate at its fastest for small ones and a sixth for large ones, and makes them smaller.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // invalid options
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxTextBytes), zstd.WithDecoderConcurrency(2))
	if err != nil {
		panic(err) // invalid options
	}
	return d
})

// packed caches the last packed texts: most submissions have the environment, and the script, of the previous one.
var packed [256]atomic.Pointer[struct {
	sum  TextKey
	text Text
}]

// maxPacked bounds the size of a cached text.
const maxPacked = 16 << 10

// packText makes the stored form of a text. Any goroutine may call it.
func packText(uid uint32, content []byte) Text {
	if len(content) == 0 {
		return Text{}
	}
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uid))
	h.Write(content)
	var sum TextKey
	h.Sum(sum[:0])
	slot := &packed[sum[0]]
	if p := slot.Load(); p != nil && p.sum == sum {
		return p.text
	}
	t := Text{Key: sum}
	if len(content) >= smallText {
		t.stored = encoder().EncodeAll(content, append(make([]byte, 0, len(content)/2+64), zstdText))
	}
	if t.stored == nil || len(t.stored) > len(content) {
		t.stored = append(append(make([]byte, 0, len(content)+1), plainText), content...)
	}
	binary.BigEndian.PutUint32(t.Key[sha256.Size-4:], uint32(len(t.stored)))
	if len(t.stored) <= maxPacked {
		slot.Store(&struct {
			sum  TextKey
			text Text
		}{sum, t})
	}
	return t
}

func unpackText(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("cannot decode a stored text: it is empty")
	}
	switch how, rest := stored[0], stored[1:]; how {
	case plainText:
		return rest, nil
	case zstdText:
		content, err := decoder().DecodeAll(rest, nil)
		if err != nil {
			return nil, fmt.Errorf("cannot decode a stored text: %w", err)
		}
		return content, nil
	default:
		return nil, fmt.Errorf("cannot decode a stored text: its encoding, %d, is unknown", how)
	}
}

// PackTexts makes the stored form of a job's script and environment. uid is the job's.
func PackTexts(uid uint32, script []byte, env []string) (t Texts, err error) {
	t.Script = packText(uid, script)
	if len(env) > 0 {
		list, err := proto.Marshal(&pb.SubmitRequest{Env: env})
		if err != nil {
			return t, fmt.Errorf("cannot encode the environment: %w", err)
		}
		t.Env = packText(uid, list)
	}
	return t, nil
}

// Name writes the keys of the texts into a record. The texts themselves stay out of memory.
func (t Texts) Name(j *pb.JobRecord) {
	j.ScriptKey, j.EnvKey = nil, nil
	if t.Script.stored != nil {
		j.ScriptKey = bytes.Clone(t.Script.Key[:])
	}
	if t.Env.stored != nil {
		j.EnvKey = bytes.Clone(t.Env.Key[:])
	}
}

// ReadTexts reads a job's script and environment; get reads a row of the journal.
func ReadTexts(get func(journal.Bucket, []byte) ([]byte, error), j *pb.JobRecord) (script []byte, env []string, err error) {
	if len(j.ScriptKey) == 0 && len(j.EnvKey) == 0 {
		return nil, nil, missing(nil, j, "script")
	}
	read := func(key []byte, what string) ([]byte, error) {
		if len(key) == 0 {
			return nil, nil
		}
		stored, err := get(journal.Texts, key)
		if err != nil || stored == nil {
			return nil, missing(err, j, what)
		}
		return unpackText(stored)
	}
	script, err = read(j.ScriptKey, "script")
	if err != nil {
		return nil, nil, err
	}
	list, err := read(j.EnvKey, "environment")
	if err != nil || list == nil {
		return script, nil, err
	}
	var r pb.SubmitRequest
	if err := proto.Unmarshal(list, &r); err != nil {
		return nil, nil, fmt.Errorf("cannot decode the environment of job %d: %w", j.Id, err)
	}
	return script, r.Env, nil
}

func missing(err error, j *pb.JobRecord, what string) error {
	if err == nil {
		err = fmt.Errorf("no %s is stored for job %d", what, j.Id)
	}
	return err
}

// putTexts stores the texts of a new job, whose record is not put yet, unless its user has them already.
func (tx *Tx) putTexts(t Texts) {
	for _, one := range []Text{t.Script, t.Env} {
		if one.stored == nil || tx.next.writer.texts[one.Key] > 0 {
			continue
		}
		if tx.texts == nil {
			tx.texts = map[TextKey][]byte{}
		}
		tx.texts[one.Key] = one.stored
	}
}

// countTexts counts the texts of a record that appears or disappears; they never change during a record's life.
func (tx *Tx) countTexts(j *pb.JobRecord, by int) {
	w := tx.next.writer
	for _, b := range [2][]byte{j.ScriptKey, j.EnvKey} {
		key, ok := keyOf(b)
		if !ok {
			continue
		}
		was := w.texts[key]
		add(w.texts, key, by)
		switch is := was + by; {
		case was == 0:
			w.bytes.add(j.Spec.GetUid(), key.size())
			if stored, put := tx.texts[key]; put && stored == nil {
				delete(tx.texts, key) // marked for deletion before
			}
		case is == 0:
			w.bytes.add(j.Spec.GetUid(), -key.size())
			if tx.texts == nil {
				tx.texts = map[TextKey][]byte{}
			}
			tx.texts[key] = nil
		}
	}
}
