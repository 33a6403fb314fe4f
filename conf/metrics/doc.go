// Package metrics serves figures for Prometheus: pages of text over HTTP, who may read them, and how often they are made.
//
// # Who may read
//
// A listener on a loopback address speaks plain HTTP and answers everybody on the machine, as commands there are answered; what names users
// is left out while it is private (PrivateData=jobs or usage). A listener on any other address speaks TLS 1.3, with the certificate of the
// daemon, and answers nobody who does not show a token (RFC 6750, Authorization: Bearer) or a certificate of the role "monitor" that this
// cluster's authority has signed. Who shows one of them is told everything, on the loopback address as well.
//
// Tokens are lines of a file that only its owner can read; what is kept of them in memory is their SHA-256.
//
// # What a reader may cost
//
// A page is made at most once a second, whoever asks how often, and takes at most half of the time: readers in between get the same bytes.
// So many connections are open at most, with so many bytes of a request and so much time for it; who has shown nothing has few
// of them and gives way to others (door).
package metrics
