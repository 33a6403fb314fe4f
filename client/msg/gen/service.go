package main

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// service writes the interface of the calls, and the methods of package client that implement it.
func (w *writer) service(d protoreflect.ServiceDescriptor) {
	api := w.file("api.gen.go", "package msg\n\nimport \"context\"\n")
	calls := w.file(callsFile, "package client\n\nimport (\n\"context\"\n\n\"github.com/sluice-hpc/sluice/client/msg\"\n)\n")
	fmt.Fprintf(api, "\n// %sClient is every call of %s.\ntype %sClient interface {\n", d.Name(), d.FullName(), d.Name())
	for i := range d.Methods().Len() {
		m := d.Methods().Get(i)
		name, in, out := m.Name(), m.Input().Name(), m.Output().Name()
		switch {
		case m.IsStreamingClient() && m.IsStreamingServer():
			w.fail("%s: no rule for streams both ways", m.FullName())
		case m.IsStreamingClient():
			fmt.Fprintf(api, "%s(context.Context) (Upload[%s, %s], error)\n", name, in, out)
			fmt.Fprintf(calls,
				"\nfunc (c *calls) %s(ctx context.Context) (msg.Upload[msg.%s, msg.%s], error) {\nreturn upload[msg.%s, msg.%s](ctx, c, "+
					"%q)\n}\n", name, in, out, in, out, name)
		case m.IsStreamingServer():
			fmt.Fprintf(api, "%s(context.Context, *%s) (Stream[%s], error)\n", name, in, out)
			fmt.Fprintf(calls,
				"\nfunc (c *calls) %s(ctx context.Context, req *msg.%s) (msg.Stream[msg.%s], error) {\nreturn download[msg.%s](ctx, c, "+
					"%q, req)\n}\n", name, in, out, out, name)
		default:
			fmt.Fprintf(api, "%s(context.Context, *%s) (*%s, error)\n", name, in, out)
			fmt.Fprintf(calls,
				"\nfunc (c *calls) %s(ctx context.Context, req *msg.%s) (*msg.%s, error) {\nreturn unary[msg.%s](ctx, c, %q, req)\n}\n",
				name, in, out, out, name)
		}
	}
	api.WriteString("}\n")
}
