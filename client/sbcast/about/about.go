// Package about is the help text of sbcast. It is separate from the command, which links TLS, so that programs that only print
// help, completions and manual pages do not link it.
package about

import (
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/opt"
)

// Options are the command line of sbcast(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "compress", Short: 'C', Arg: opt.Optional}, Env: "SBCAST_COMPRESS", Meta: "lz4|none",
		Help: "compress the transfer, always with S2"},
	{Name: opt.Name{Long: "exclude", Arg: opt.Required}, Env: "SBCAST_EXCLUDE", Meta: "PATHS",
		Help: "with --send-libs: leave out libraries below these directories; NONE: none (/lib,/usr/lib,/lib64,/usr/lib64)"},
	{Name: opt.Name{Long: "fanout", Short: 'F', Arg: opt.Required}, Env: "SBCAST_FANOUT", Meta: "N",
		Help: "number of nodes to copy to at a time (8)"},
	{Name: opt.Name{Long: "force", Short: 'f'}, Env: "SBCAST_FORCE", Help: "replace files that exist"},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "jobid", Short: 'j', Arg: opt.Required}, Meta: "JOB[.STEP]", Help: "copy to the nodes of this job or step"},
	{Name: opt.Name{Long: "preserve", Short: 'p'}, Env: "SBCAST_PRESERVE", Help: "keep permissions and times"},
	{Name: opt.Name{Long: "send-libs", Arg: opt.Optional}, Env: "SBCAST_SEND_LIBS", Meta: "yes|no",
		Help: "send the program's shared libraries, too, to DEST_libs"},
	{Name: opt.Name{Long: "size", Short: 's', Arg: opt.Required}, Env: "SBCAST_SIZE", Meta: "BYTES", Help: "size of blocks (no effect)"},
	{Name: opt.Name{Long: "timeout", Short: 't', Arg: opt.Required}, Env: "SBCAST_TIMEOUT", Meta: "SECONDS",
		Help: "give up a node that accepts no data for this time"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print more"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
}

// Usage is the short help.
const Usage = "Usage: sbcast [--exclude] [-CfFjpvV] [--send-libs] SOURCE DEST\n"

// Page describes sbcast.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: sbcast [OPTIONS] SOURCE DEST",
		About: `Copies a file to all nodes of a job, as its user, usually to a local file system. The file gets its name when it is complete
and its checksum is right, so a node has the whole file or none. An existing file is kept unless --force is given.`,
		Options: Options[:],
		Examples: `  sbcast model.bin /tmp/model.bin              in a batch script, before srun
  sbcast -f -p prog /tmp/prog && srun /tmp/prog
  sbcast --jobid=12 data.tar /scratch/data.tar from a login host
`}
}
