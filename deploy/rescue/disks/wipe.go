package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// The methods of wiping a disk.
const (
	methodDiscard = "discard" // the disk was told that all of it is unused, and reads as zeros
	methodZeros   = "zeros"   // zeros were written over all of it
)

const (
	pieceSize = 4 << 20
	// sampleSize is the size of a piece that is read back, and randomSamples how many are read besides the first and the last.
	sampleSize, randomSamples = 1 << 20, 30
)

// report is what the wiping of one disk leaves.
type report struct {
	Disk       string    `json:"disk"`
	Model      string    `json:"model,omitempty"`
	Serial     string    `json:"serial,omitempty"`
	WWN        string    `json:"wwn,omitempty"`
	Size       int64     `json:"size"`
	Method     string    `json:"method"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	// Samples are the offsets of pieces that were read back. Each has SampleSize bytes, which are zeros.
	Samples    []int64 `json:"samples"`
	SampleSize int64   `json:"sample_size"`
}

// wipe makes a disk read as zeros. It discards all of the disk, and if that fails or the disk does not read as zeros then, it writes zeros.
// It fails if the disk does not read as zeros after all.
func (m *machine) wipe(d disk) (r report, err error) {
	r = report{Disk: d.Path, Model: deref(d.Model), Serial: deref(d.Serial), WWN: deref(d.WWN), Size: d.Size,
		SampleSize: min(d.Size, sampleSize), StartedAt: time.Now().UTC()}
	if _, err := m.run("blkdiscard", "--force", d.Path); err == nil {
		r.Method = methodDiscard
		if r.Samples, err = readBack(d); err == nil {
			r.FinishedAt = time.Now().UTC()
			return r, nil
		}
	}
	r.Method = methodZeros
	if err := writeZeros(d); err != nil {
		return r, fmt.Errorf("write zeros to %s: %w", d, err)
	}
	if r.Samples, err = readBack(d); err != nil {
		return r, fmt.Errorf("read %s back: %w", d, err)
	}
	r.FinishedAt = time.Now().UTC()
	return r, nil
}

// writeZeros writes zeros over all of a disk.
func writeZeros(d disk) (err error) {
	f, err := os.OpenFile(d.Path, os.O_WRONLY|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zeros := make([]byte, pieceSize)
	for left := d.Size; left > 0; {
		n, err := f.Write(zeros[:min(left, pieceSize)])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return f.Sync()
}

// readBack reads the first and the last piece of a disk, and some at random, and returns their offsets. It fails if one of them is not
// all zeros.
func readBack(d disk) ([]int64, error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := min(d.Size, sampleSize)
	offsets := []int64{0, d.Size - size}
	for range randomSamples {
		offsets = append(offsets, rand.Int64N(d.Size-size+1))
	}
	zeros := make([]byte, size)
	for _, offset := range offsets {
		content := make([]byte, size)
		if _, err := io.ReadFull(io.NewSectionReader(f, offset, size), content); err != nil {
			return nil, err
		}
		if !bytes.Equal(content, zeros) {
			return nil, fmt.Errorf("the %d bytes from %d on are not zeros", size, offset)
		}
	}
	return offsets, nil
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
