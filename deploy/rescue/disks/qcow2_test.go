package main

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newQCOW2 returns a file with clusters of 512 bytes: data, zeros without a cluster, zeros by a flag, and packed data. The disk ends in
// the middle of a fifth one. content is the content of its disk.
func newQCOW2(t *testing.T) (file, content []byte) {
	t.Helper()
	const cluster = 512
	data, packedData := bytes.Repeat([]byte("data"), cluster/4), bytes.Repeat([]byte("pack"), cluster/4)
	content = append(content, data...)
	content = append(content, make([]byte, 2*cluster)...)
	content = append(content, packedData...)
	content = append(content, data[:100]...)
	file = make([]byte, 8*cluster)
	var header bytes.Buffer
	if err := binary.Write(&header, binary.BigEndian, qcow2Header{
		Magic: qcow2Magic, Version: 3, ClusterBits: 9, Size: uint64(len(content)), L1Size: 1, L1Offset: cluster, HeaderLength: 104,
	}); err != nil {
		t.Fatal(err)
	}
	copy(file, header.Bytes())
	binary.BigEndian.PutUint64(file[cluster:], 2*cluster)
	var packed bytes.Buffer
	packer, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = packer.Write(packedData)
	_ = packer.Close()
	const packedAt = 4*cluster + 7 // compressed clusters begin anywhere
	copy(file[packedAt:], packed.Bytes())
	copy(file[3*cluster:], data)
	copy(file[6*cluster:], data)
	for n, entry := range []uint64{3 * cluster, 0, 3*cluster | zeroFlag, compressedFlag | packedAt, 6 * cluster} {
		binary.BigEndian.PutUint64(file[2*cluster+8*n:], entry)
	}
	return file, content
}

func TestQCOW2(t *testing.T) {
	t.Parallel()
	file, want := newQCOW2(t)
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := (&machine{}).do([]string{"raw", path}, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes (%v), want the %d bytes of the disk", got.Len(), err, len(want))
	}
	for name, one := range map[string]struct {
		change func([]byte)
		want   string
	}{
		"another format": {func(f []byte) { f[0] = 'X' }, "not a qcow2 file"},
		"based":          {func(f []byte) { f[15] = 1 }, "based on another file"},
		"encrypted":      {func(f []byte) { f[35] = 1 }, "encrypted"},
		"data elsewhere": {func(f []byte) { f[79] = 4 }, "features that are not supported: 0x4"},
		"large clusters": {func(f []byte) { f[23] = 60 }, "damaged"},
		"large table":    {func(f []byte) { f[36] = 0xff }, "damaged"},
		"table beyond":   {func(f []byte) { f[40] = 0x70 }, "read a table"},
		"large disk":     {func(f []byte) { f[24] = 1 }, "too short"},
		"damaged pack":   {func(f []byte) { copy(f[4*512+7:], "\xff\xff\xff") }, "unpack a cluster"},
	} {
		changed := bytes.Clone(file)
		one.change(changed)
		q, err := openQCOW2(bytes.NewReader(changed))
		if err == nil {
			err = q.writeTo(&bytes.Buffer{})
		}
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, one.want)
		}
	}
}

// A disk that qemu-img has packed reads as before.
func TestQCOW2OfQEMU(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed; Debian's package qemu-utils has it")
	}
	folder := t.TempDir()
	raw := filepath.Join(folder, "disk.raw")
	want := make([]byte, 20<<20+512)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(want[1<<20 : 3<<20])
	copy(want[10<<20:], strings.Repeat("a text that packs well\n", 100_000))
	if err := os.WriteFile(raw, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]string{
		"plain": nil, "packed": {"-c"}, "zstd": {"-c", "-o", "compression_type=zstd"}, "version 2": {"-c", "-o", "compat=0.10"},
		"large clusters": {"-o", "cluster_size=2M"},
	} {
		path := filepath.Join(folder, strings.ReplaceAll(name, " ", "-"))
		arguments := append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...), raw, path)
		if output, err := exec.CommandContext(t.Context(), "qemu-img", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %q: %v\n%s", arguments, err, output)
		}
		var got bytes.Buffer
		if err := (&machine{}).do([]string{"raw", path}, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got %d bytes (%v), want the %d bytes of the disk", name, got.Len(), err, len(want))
		}
	}
}
