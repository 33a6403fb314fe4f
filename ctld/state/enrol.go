package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Tokens with which hosts join, and the certificates of each host. Both lists are sorted, and copied on a change, because people change
// them, not jobs.

// Tokens returns the join tokens by id. The slice must not be changed.
func (v *View) Tokens() []*pb.TokenRecord { return v.tokens }

// Token returns a join token, or nil.
func (v *View) Token(id string) *pb.TokenRecord {
	if i, ok := findToken(v.tokens, id); ok {
		return v.tokens[i]
	}
	return nil
}

// Hosts returns the hosts' certificates, by name of the host. The slice must not be changed.
func (v *View) Hosts() []*pb.HostRecord { return v.hosts }

// Host returns the certificates of a host, or nil.
func (v *View) Host(name string) *pb.HostRecord {
	if i, ok := findHost(v.hosts, name); ok {
		return v.hosts[i]
	}
	return nil
}

// Certificate returns the record of a host's certificate, or nil.
func (v *View) Certificate(name, serial string) *pb.CertificateRecord {
	for _, c := range v.Host(name).GetCertificates() {
		if c.Serial == serial {
			return c
		}
	}
	return nil
}

// Accepts reports whether neither the certificate nor all certificates of its name are revoked. The certificate itself says when it
// expires.
func (v *View) Accepts(name, serial string) bool {
	if c := v.Certificate(name, serial); c != nil {
		return c.RevokedNs == 0
	}
	return v.Host(name).GetRevokedNs() == 0
}

// Token and Host read the working state.
func (tx *Tx) Token(id string) *pb.TokenRecord { return tx.next.Token(id) }
func (tx *Tx) Host(name string) *pb.HostRecord { return tx.next.Host(name) }

func findToken(list []*pb.TokenRecord, id string) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(r *pb.TokenRecord, id string) int { return strings.Compare(r.Id, id) })
}

func findHost(list []*pb.HostRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(r *pb.HostRecord, name string) int { return strings.Compare(r.Name, name) })
}

// CloneToken copies a token.
func CloneToken(r *pb.TokenRecord) *pb.TokenRecord {
	return &pb.TokenRecord{Id: r.Id, SecretHash: r.SecretHash, Node: r.Node, Role: r.Role, CreatedNs: r.CreatedNs, TtlNs: r.TtlNs,
		Uid: r.Uid, Revoked: r.Revoked, UsedNs: r.UsedNs, KeyHash: r.KeyHash, Certificate: r.Certificate}
}

// CloneHost copies a host and the list of its certificates; nil gives an empty one of that name.
func CloneHost(r *pb.HostRecord, name string) *pb.HostRecord {
	return &pb.HostRecord{Name: name, Certificates: slices.Clone(r.GetCertificates()), RevokedNs: r.GetRevokedNs()}
}

// CloneCertificate copies a certificate.
func CloneCertificate(r *pb.CertificateRecord) *pb.CertificateRecord {
	return &pb.CertificateRecord{Serial: r.Serial, Role: r.Role, IssuedNs: r.IssuedNs, ExpiresNs: r.ExpiresNs, Authority: r.Authority,
		Origin: r.Origin, RevokedNs: r.RevokedNs}
}

// TokenExpires returns the time until which a token can be used, in nanoseconds since 1970.
func TokenExpires(r *pb.TokenRecord) int64 { return r.CreatedNs + r.TtlNs }

// TokenChanged: a join token was made, used, revoked or (Gone) forgotten. What is a word for it.
type TokenChanged struct {
	Token *pb.TokenRecord
	Gone  bool
	What  string
}

func (e TokenChanged) apply(tx *Tx) {
	r := e.Token
	if e.Gone {
		r = nil
	}
	tx.putToken(e.Token.Id, r)
}

// Attrs implements Event.
func (e TokenChanged) Attrs() []any {
	return []any{"token", e.Token.Id, "host", e.Token.Node, "role", e.Token.Role, "what", e.What}
}

// HostChanged: a host was given a certificate, or its certificates were revoked. What is a word for it.
type HostChanged struct {
	Host *pb.HostRecord
	What string
}

func (e HostChanged) apply(tx *Tx) { tx.putHost(e.Host) }

// Attrs implements Event.
func (e HostChanged) Attrs() []any {
	return []any{"host", e.Host.Name, "what", e.What, "certificates", len(e.Host.Certificates)}
}

// putToken stores a token, or removes it when r is nil.
func (tx *Tx) putToken(id string, r *pb.TokenRecord) {
	list := slices.Clone(tx.next.tokens)
	i, found := findToken(list, id)
	switch {
	case r == nil && found:
		list = slices.Delete(list, i, i+1)
	case found:
		list[i] = r
	case r != nil:
		list = slices.Insert(list, i, r)
	}
	tx.next.tokens = list
	if tx.tokens == nil {
		tx.tokens = map[string]bool{}
	}
	tx.tokens[id] = true
}

func (tx *Tx) putHost(r *pb.HostRecord) {
	list := slices.Clone(tx.next.hosts)
	if i, found := findHost(list, r.Name); found {
		list[i] = r
	} else {
		list = slices.Insert(list, i, r)
	}
	tx.next.hosts = list
	if tx.hosts == nil {
		tx.hosts = map[string]bool{}
	}
	tx.hosts[r.Name] = true
}

// moveTokens moves the tokens with a clock that was set, so that a token keeps its lifetime.
func (tx *Tx) moveTokens(c setting) {
	for _, r := range tx.next.tokens {
		moved := CloneToken(r)
		if c.past(&moved.CreatedNs) {
			tx.putToken(r.Id, moved)
		}
	}
}

func (tx *Tx) enrolRows(rows []journal.Row, tokens map[string]bool) ([]journal.Row, error) {
	for id := range tokens {
		row, err := encode(journal.Tokens, []byte(id), tx.Token(id))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for name := range tx.hosts {
		row, err := encode(journal.Tokens, []byte(hostKey+name), tx.Host(name))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// hostKey begins the keys of hosts, whose rows are in the bucket of the tokens. No id of a token has a slash.
const hostKey = "host/"

func (tx *Tx) loadEnrol(key, value []byte) error {
	if !strings.HasPrefix(string(key), hostKey) {
		r := &pb.TokenRecord{}
		if err := proto.Unmarshal(value, r); err != nil {
			return fmt.Errorf("cannot decode the join token %q: %w", key, err)
		}
		tx.putToken(r.Id, r)
		return nil
	}
	r := &pb.HostRecord{}
	if err := proto.Unmarshal(value, r); err != nil {
		return fmt.Errorf("cannot decode the certificates of host %q: %w", key, err)
	}
	tx.putHost(r)
	return nil
}

// The roles of hosts that join (package mtls).
const (
	RoleNode  = "node"
	RoleLogin = "login"
)
