// Package hostile is the suite of what an ordinary user can try against a cluster: the real daemons as processes, and attackers that are
// processes of other users, with nothing but the sockets. It holds tests only.
//
// # Adding a case
//
// What the attacker does is a function in the table attacks, beside the test that uses it; it runs in a process of its own, as the
// user whom the test names, and tells the test what it has seen by lines on its standard output:
//
//	func init() { attacks["flood"] = func(a *attacker) { …; a.say("sent %d", n) } }
//
//	func TestFlood(t *testing.T) {
//		c := newCluster(t)
//		a := c.attack(mallory, "flood")
//		…a.line()…                                 // what it says
//		c.bystander()                              // somebody else is served meanwhile
//		…c.descriptors(), c.memory()…              // what it costs
//		c.unharmed(a)                              // nothing is left of it once it has gone
//	}
//
// Tests count what was taken in, what is open, what is in memory; they do not measure time, so that they mean the same on a slow machine.
// Whether something ends is waited for.
//
// # Running it
//
//	go test ./ctld/hostile               # as root
//	go test ./ctld/hostile -bin $PWD/bin # the programs of make build, or of an older version: then the tests show what they are for
package hostile
