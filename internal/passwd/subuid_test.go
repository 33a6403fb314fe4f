package passwd

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSubordinates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1000, 0)
	s := NewSubordinates(path)
	s.now = func() time.Time { return now }
	check := func(want map[uint32]uint32) {
		t.Helper()
		for uid, owner := range want {
			if got := s.Owner(uid); got != owner {
				t.Errorf("uid %d is %d's, want %d", uid, got, owner)
			}
		}
	}
	check(map[uint32]uint32{5: 5, 100000: 100000}) // there is no file
	root, _ := User("root")
	write("root:100000:65536\n2000:300000:10\nnobody.there:400000:5\nbad\n:1:\nx:y:z\n7:0:5\n8:4294967290:4294967290\n9:500000:0\n" +
		"2000:65530:10\n")
	now = now.Add(recheck)
	check(map[uint32]uint32{99999: 99999, 100000: root.UID, 165535: root.UID, 165536: 165536, 300000: 2000, 300009: 2000, 300010: 300010,
		400003: 400000, 500000: 500000, 4294967293: 8, 0: 0, 65533: 2000, 65539: 2000,
		65534: 65534}) // nobody has an account
	write("2001:300000:10\n")
	check(map[uint32]uint32{300000: 2000}) // not looked at again yet
	now = now.Add(recheck)
	check(map[uint32]uint32{300000: 2001, 100000: 100000})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(recheck)
	check(map[uint32]uint32{300000: 300000})
}

func FuzzSubordinates(f *testing.F) {
	f.Add("root:100000:65536\n2000:4294967290:4294967290\n", "root:x:0:0:::\nx:x:100005:1:::\n", uint32(100005))
	f.Fuzz(func(t *testing.T, subuid, passwd string, uid uint32) {
		s := &Subordinates{now: time.Now, checked: time.Now(), ranges: subordinates([]byte(subuid), []byte(passwd))}
		s.Owner(uid)
		for _, r := range s.ranges {
			if r.count == 0 || r.first+(r.count-1) < r.first {
				t.Errorf("%+v", r)
			}
		}
	})
}
