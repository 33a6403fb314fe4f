package predict

import "testing"

func TestPredict(t *testing.T) {
	var h History
	want := func(user, name string, s int64) {
		t.Helper()
		if got := h.Predict(user, name); got != s {
			t.Fatalf("%s %s: %d, want %d", user, name, got, s)
		}
	}
	want("u", "a", 0)
	h.Ended("u", "a", 100)
	want("u", "a", 100)
	h.Ended("u", "a", 200)
	want("u", "a", 150)
	h.Ended("u", "a", 400)
	want("u", "a", 300)
	want("u", "b", 0)
	want("v", "a", 0)
	h.Ended("v", "a", 0)
	want("v", "a", 1)
}
