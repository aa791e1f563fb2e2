package image

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

// Of a WIM's header.
const (
	wimHead      = 208
	wimXML       = 72 // where it says where the XML is
	longestXML   = 8 << 20
	compressed   = 4
	mostEditions = 100
)

// Edition is one of those of Windows.
type Edition struct {
	Number int64
	Name   string
}

// ErrNoEditions says that the editions in an image cannot be read.
var ErrNoEditions = errors.New("its install.wim, install.esd or install.swm cannot be read")

// Editions are those in sources/install.wim or install.esd of an image, or install.swm, the first part of one; none where it has none of
// them. However a WIM's contents are compressed, what it says of its images is not.
func Editions(from io.ReaderAt, files []File) ([]Edition, error) {
	for _, f := range files {
		switch strings.ToLower(f.Path) {
		case "sources/install.wim", "sources/install.esd", "sources/install.swm":
			found, err := editionsOf(f, from)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrNoEditions, err)
			}
			return found, err
		}
	}
	return nil, nil
}

func editionsOf(f File, from io.ReaderAt) ([]Edition, error) {
	head, err := f.read(from, 0, wimHead)
	if err != nil {
		return nil, err
	}
	switch string(head[:8]) {
	case "MSWIM\x00\x00\x00":
	case "WLPWM\x00\x00\x00": // written in one go: where the rest is stands in the same header at the end
		if head, err = f.read(from, f.Size()-wimHead, wimHead); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("it is no WIM")
	}
	at := head[wimXML:]
	size, flags, offset := int64(little.Uint64(at)&(1<<56-1)), at[7], int64(little.Uint64(at[8:]))
	if flags&compressed != 0 || size > longestXML || size%2 != 0 {
		return nil, errors.New("what it says of its images is too long, or compressed")
	}
	text, err := f.read(from, offset, size)
	if err != nil {
		return nil, err
	}
	units := make([]uint16, len(text)/2)
	for n := range units {
		units[n] = little.Uint16(text[2*n:])
	}
	var says struct {
		Images []struct {
			Number int64  `xml:"INDEX,attr"`
			Name   string `xml:"NAME"`
		} `xml:"IMAGE"`
	}
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff")), &says); err != nil {
		return nil, fmt.Errorf("read what it says of its images: %w", err)
	}
	var all []Edition
	for _, one := range says.Images {
		name := strings.TrimSpace(one.Name)
		if name == "" || len(name) > 255 || strings.ContainsRune(name, 0) || len(all) == mostEditions {
			return nil, errors.New("it has too many images, or one without a name")
		}
		all = append(all, Edition{one.Number, name})
	}
	return all, nil
}

// read reads a stretch of a file.
func (f File) read(from io.ReaderAt, at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > f.Size()-n {
		return nil, errCut
	}
	text := make([]byte, 0, n)
	for _, e := range f.Extents {
		if at < e.Size && n > 0 {
			piece := make([]byte, min(n, e.Size-at))
			if _, err := from.ReadAt(piece, e.At+at); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			text, n, at = append(text, piece...), n-int64(len(piece)), 0
		} else {
			at -= e.Size
		}
	}
	return text, nil
}
