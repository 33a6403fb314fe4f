package journal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Bucket is a kind of row. Its number is part of every checksum: after a release, append new kinds, never renumber.
type Bucket byte

// The kinds of rows. Keys of Jobs and Steps begin with the job id, 4 bytes big-endian: rows of one submission burst lie
// side by side, and the journal learns from the keys of Jobs which ids are in use.
const (
	Meta Bucket = 1 + iota
	Jobs
	Steps
	Nodes
	Partitions
	Requests
	Reservations
	Accounts
	Finished
	Tokens
	Crontabs
	Texts
	lastBucket = Texts
)

// bucketInfo says how a kind of row is stored and named.
type bucketInfo struct {
	name    string // of the bolt bucket
	noun    string // of one row, for messages
	numeric bool   // keys begin with a 4-byte id
	fill    float64
}

// The fill percentage: buckets that grow at their end split nearly full, the others leave room to grow in place.
var buckets = [lastBucket + 1]bucketInfo{
	Meta:         {"meta", "setting", false, 0.7},
	Jobs:         {"jobs", "job", true, 0.8},
	Steps:        {"steps", "step of job", true, 0.8},
	Nodes:        {"nodes", "node", false, 0.7},
	Partitions:   {"partitions", "partition", false, 0.7},
	Requests:     {"requests", "request", false, 0.7},
	Reservations: {"reservations", "reservation", false, 0.7},
	Accounts:     {"accounts", "account", false, 0.7},
	Finished:     {"finished", "finished job", true, 0.95},
	Tokens:       {"tokens", "token", false, 0.7},
	Crontabs:     {"crontabs", "crontab of", false, 0.7},
	Texts:        {"texts", "script or environment", false, 0.7},
}

const headName = "head" // the bolt bucket of the head record; checksummed as Bucket 0

func (b Bucket) valid() bool { return b >= 1 && b <= lastBucket }

func (b Bucket) String() string {
	if !b.valid() {
		return "bucket " + strconv.Itoa(int(b))
	}
	return buckets[b].name
}

func bucketNamed(name []byte) (Bucket, bool) {
	for b := Bucket(1); b <= lastBucket; b++ {
		if buckets[b].name == string(name) {
			return b, true
		}
	}
	return 0, false
}

// describe names a row for people: "job 12", `node "n7"`.
func describe(b Bucket, key []byte) string {
	if !b.valid() {
		return "the head record"
	}
	info := buckets[b]
	if info.numeric && len(key) == 4 {
		return info.noun + " " + strconv.FormatUint(uint64(binary.BigEndian.Uint32(key)), 10)
	}
	if info.numeric && len(key) > 4 {
		return fmt.Sprintf("%s %d (%s)", info.noun, binary.BigEndian.Uint32(key), hex.EncodeToString(key[4:]))
	}
	return fmt.Sprintf("%s %q", info.noun, key)
}
