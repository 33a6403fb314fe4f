// Package metrics serves Prometheus pages over HTTP and decides who may read them and how often they are rendered.
//
// # Who may read
//
// A listener on a loopback address speaks plain HTTP and answers everybody on the machine, like the commands there; values that
// name users are left out while they are private (PrivateData=jobs or usage). A listener on any other address speaks TLS 1.3 with
// the daemon's certificate, and answers only readers with a token (RFC 6750, Authorization: Bearer) or a certificate of the role
// "monitor" signed by the cluster's authority. Such readers see everything, on the loopback address as well.
//
// Tokens are lines of a file that only its owner can read; memory holds their SHA-256.
//
// # Cost
//
// A page is rendered at most once a second, however often it is requested, and rendering takes at most half of the time; readers in
// between get the same bytes. The number of connections, the bytes of a request and the time for it are bounded. Readers without
// credentials have few connections and give way to others (door.go).
package metrics
