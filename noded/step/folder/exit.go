package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// An exit record is written to the temporary file, renamed, and synced once, after the rename: on the file systems of spools
// (ext4, xfs, btrfs), syncing a file whose name has just changed makes the name durable too. A power cut before that may leave
// the new name with old or torn contents, so a record ends with its checksum and counts only in the directory of the step that it
// names. Rejected: to sync the file, rename it, and sync the directory, which costs a short job twice as much.

// sealLen is the length of the checksum at the end of a record: CRC-32C, little-endian.
const sealLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func seal(raw []byte) []byte {
	return binary.LittleEndian.AppendUint32(raw, crc32.Checksum(raw, castagnoli))
}

// unseal returns false for data that seal did not make, or that was torn since.
func unseal(raw []byte) ([]byte, bool) {
	n := len(raw) - sealLen
	if n <= 0 {
		return nil, false
	}
	return raw[:n], binary.LittleEndian.Uint32(raw[n:]) == crc32.Checksum(raw[:n], castagnoli)
}

// ReadExit returns the exit record of the step with directory dir; nil without an error if there is none. A record that is torn
// or of another step is an error.
func ReadExit(dir string) (*pb.ExitRecord, error) {
	path := filepath.Join(dir, Exit)
	sealed, err := slurp(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	raw, whole := unseal(sealed)
	if !whole {
		return nil, fmt.Errorf("cannot read %s: its checksum is wrong; the power failed while it was written", path)
	}
	r := &pb.ExitRecord{}
	if err := proto.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if of := Name(r.Key); of != filepath.Base(dir) {
		return nil, fmt.Errorf("cannot use %s: it is of step %s", path, of)
	}
	return r, nil
}

// WriteExit makes the record durable in the directory of the step that it names.
func WriteExit(dir string, r *pb.ExitRecord) error {
	raw, err := proto.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode exit record: %w", err)
	}
	if err := writeExit(dir, seal(raw)); err != nil {
		return fmt.Errorf("cannot write exit record in %s: %w", dir, err)
	}
	return nil
}

func writeExit(dir string, raw []byte) error {
	from := filepath.Join(dir, tmp)
	fd, err := unix.Open(from, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = overwrite(fd, raw)
	if err == nil {
		err = unix.Rename(from, filepath.Join(dir, Exit))
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}
