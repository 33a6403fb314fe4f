package rpc

import (
	"context"
	"strings"
	"testing"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestEveryMethodHasARow reads the services from the .proto files.
func TestEveryMethodHasARow(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range []protoreflect.FileDescriptor{pb.File_sluice_v1_services_proto,
		nodepb.File_sluice_node_v1_nodeapi_proto, nodepb.File_sluice_node_v1_relay_proto,
		nodepb.File_sluice_node_v1_enrol_proto} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for k := range s.Methods().Len() {
				name := string(s.FullName()) + "/" + string(s.Methods().Get(k).Name())
				seen[name] = true
				row, ok := Table[name]
				if !ok || row.Who == 0 {
					t.Errorf("%s has no row in the authorisation table", name)
				}
				for v, answer := range row.Via {
					if answer != Yes && answer != No {
						t.Errorf("%s: the table does not say whether a caller may be known by %v", name, Via(v))
					}
				}
			}
		}
	}
	served := methods(&Service{})
	for name := range seen {
		if m, ours := strings.CutPrefix(name, controllerAPI+"/"); ours && served[m].handle == nil {
			t.Errorf("%s is not served", name)
		}
	}
	for name := range Table {
		if !seen[name] {
			t.Errorf("the table has a row for %s, which no service has", name)
		}
	}
}

func TestAuthorise(t *testing.T) {
	user := context.WithValue(context.Background(), peerKey{}, &Peer{UID: 1000})
	root := context.WithValue(context.Background(), peerKey{}, &Peer{UID: 0, Operator: true})
	for name, row := range Table {
		who := row.Who
		_, userErr := authorise(user, "/"+name)
		_, rootErr := authorise(root, "/"+name)
		local := strings.Contains(name, "ControllerAPI")
		if allowed := userErr == nil; allowed != (local && who != Operator) {
			t.Errorf("%s: a user is allowed = %v", name, allowed)
		}
		if allowed := rootErr == nil; allowed != local {
			t.Errorf("%s: root is allowed = %v", name, allowed)
		}
		for via := ViaRelay; via < vias; via++ {
			peer := &Peer{UID: 0, Operator: true, Via: via, Host: "far"}
			_, err := authorise(context.WithValue(context.Background(), peerKey{}, peer), "/"+name)
			if allowed := err == nil; allowed != (local && row.Via[via] == Yes) || via == ViaToken && allowed {
				t.Errorf("%s: root, known by %v, is allowed = %v", name, via, allowed)
			}
		}
	}
	if _, err := authorise(root, "/sluice.v1.ControllerAPI/NoSuch"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a method without a row: %v", err)
	}
	if _, err := authorise(context.Background(), "/sluice.v1.ControllerAPI/Ping"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no peer: %v", err)
	}
}
