// Package hostile tests attacks by ordinary users: the real daemons as processes, and attackers that are processes of other users,
// with access only to the sockets. It holds tests only.
//
// # Adding a case
//
// An attack is a function in the table attacks, beside the test that uses it. It runs in a separate process, as the user whom the
// test names, and reports to the test by lines on its standard output:
//
//	func init() { attacks["flood"] = func(a *attacker) { …; a.say("sent %d", n) } }
//
//	func TestFlood(t *testing.T) {
//		c := newCluster(t)
//		a := c.attack(mallory, "flood")
//		…a.line()…                                 // its report
//		c.bystander()                              // somebody else is served meanwhile
//		…c.descriptors(), c.memory()…              // its cost
//		c.unharmed(a)                              // nothing is left of it once it has gone
//	}
//
// Tests count accepted requests, open connections and memory. They do not measure time, so that their results do not depend on the
// speed of the machine. They wait for the ends of processes.
//
// # Running it
//
//	go test ./internal/test/hostile               # as root
//	go test ./internal/test/hostile -bin $PWD/bin # the programs of make build, or of an older version, to see tests fail
package hostile
