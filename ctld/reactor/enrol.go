package reactor

import (
	"bytes"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxCertificates bounds the certificates remembered for one host: expired ones are dropped first.
const maxCertificates = 16

// Join uses a token. The certificate is signed already, and is handed out only if this succeeds. The reply is Joined.
type Join struct {
	Token       string // its id
	SecretHash  []byte
	Node, Role  string
	KeyHash     []byte
	Certificate []byte // DER
	Record      *pb.CertificateRecord
}

// Joined is the reply to Join: the certificate to hand out. A repeated request gets the certificate of the first one.
type Joined struct{ Certificate []byte }

// Handle judges the token and notes its use.
func (c Join) Handle(tx *state.Tx) any {
	t := tx.Token(c.Token)
	if p := JudgeToken(t, c.SecretHash, c.Node, c.Role, c.KeyHash, tx.NowNS); p != nil {
		return p
	}
	if t.UsedNs != 0 && bytes.Equal(t.KeyHash, c.KeyHash) {
		return Joined{Certificate: t.Certificate}
	}
	n := state.CloneToken(t)
	n.UsedNs, n.KeyHash, n.Certificate = tx.NowNS, c.KeyHash, c.Certificate
	tx.Emit(state.TokenChanged{Token: n, What: "used"})
	note(tx, c.Node, c.Record, "joined")
	return Joined{Certificate: c.Certificate}
}

// Certified: a certificate was issued to the holder of another one, or by hand. The reply is nil.
type Certified struct {
	Name   string
	By     string // serial of the certificate that was presented; "": none
	Record *pb.CertificateRecord
}

// Handle notes the certificate, unless the one that was presented has been revoked meanwhile.
func (c Certified) Handle(tx *state.Tx) any {
	if p := hostName(c.Name); p != nil {
		return p
	}
	if c.By != "" && !tx.View().Accepts(c.Name, c.By) {
		return RevokedProblem(c.Name)
	}
	if tx.View().Certificate(c.Name, c.Record.Serial) == nil {
		note(tx, c.Name, c.Record, "certified")
	}
	return nil
}

// RevokedProblem is the refusal for a host that was shut out.
func RevokedProblem(name string) *pb.Problem {
	return pb.NewProblem(pb.CodeAccessDenied, "the certificate of %s was revoked", name).
		WithHint("to let it in again, create a token on the controller: sluice token create --node %s", name)
}

// note adds a certificate to a host's.
func note(tx *state.Tx, name string, r *pb.CertificateRecord, what string) {
	h := state.CloneHost(tx.Host(name), name)
	h.Certificates = append(h.Certificates, r)
	ended := func(c *pb.CertificateRecord) bool { return len(h.Certificates) > 1 && c.ExpiresNs < tx.NowNS }
	if len(h.Certificates) > maxCertificates {
		h.Certificates = slices.DeleteFunc(h.Certificates, ended)
	}
	// If the name was revoked, the forgotten certificates stay invalid.
	h.Certificates = h.Certificates[max(0, len(h.Certificates)-maxCertificates):]
	tx.Emit(state.HostChanged{Host: h, What: what})
}
