package resv

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMeets: two reservations meet exactly when some occurrences of them do, each compared with each for two weeks.
func TestMeets(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("%v: install tzdata", err)
	}
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, berlin)
	occurrences := func(r *pb.ReservationRecord) (list []*pb.ReservationRecord) {
		list = append(list, r)
		for _, l := range Later(r, 15*24, berlin) {
			if l.StartNs < monday.AddDate(0, 0, 15).UnixNano() {
				list = append(list, l)
			}
		}
		return list
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *pb.ReservationRecord {
			r := &pb.ReservationRecord{Name: name}
			if f := rapid.SampledFrom([]string{"", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"}).Draw(t, name); f != "" {
				r.Flags = []string{f}
			}
			r.StartNs = monday.Add(time.Duration(rapid.IntRange(0, 6*24*4).Draw(t, name+" begins")) * 15 * time.Minute).UnixNano()
			r.EndNs = r.StartNs + int64(rapid.IntRange(1, 12).Draw(t, name+" lasts"))*15*60e9
			return r
		}
		a, b, want := draw("a"), draw("b"), false
		for _, x := range occurrences(a) {
			for _, y := range occurrences(b) {
				want = want || x.StartNs < y.EndNs && y.StartNs < x.EndNs
			}
		}
		if got := meets(a, b, berlin); got != want || meets(b, a, berlin) != want {
			t.Errorf("meets is %v, want %v", got, want)
		}
	})
}

// TestMeetsLater: an hour that repeats is compared with one months away, too.
func TestMeetsLater(t *testing.T) {
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC).UnixNano()
	hourly := &pb.ReservationRecord{Name: "h", Flags: []string{"HOURLY"}, StartNs: start, EndNs: start + 10*60e9}
	for minute, want := range map[int64]bool{0: true, 9: true, 10: false, 30: false, 55: true} {
		later := &pb.ReservationRecord{Name: "l", StartNs: start + 100*24*3600e9 + minute*60e9}
		later.EndNs = later.StartNs + 10*60e9
		if got := meets(hourly, later, time.UTC); got != want {
			t.Errorf("at minute %d: %v, want %v", minute, got, want)
		}
	}
}
