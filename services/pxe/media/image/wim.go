package image

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
)

// Parts of a WIM's header, and limits.
const (
	wimHeaderSize  = 208
	wimXMLOffset   = 72 // the offset of the location of the XML
	maxXMLSize     = 8 << 20
	flagCompressed = 4
	maxEditions    = 100
)

// Edition is an edition of Windows.
type Edition struct {
	Number int64
	Name   string
}

// ErrNoEditions says that the editions in an image cannot be read.
var ErrNoEditions = errors.New("the editions in install.wim, install.esd or install.swm cannot be read")

// ReadEditions returns the editions in sources/install.wim or install.esd of an image, or in install.swm, the first part
// of a split WIM. It returns none if the image has none of these files. The list of editions is uncompressed in every
// WIM.
func ReadEditions(from io.ReaderAt, files []File) ([]Edition, error) {
	for _, f := range files {
		switch strings.ToLower(f.Path) {
		case "sources/install.wim", "sources/install.esd", "sources/install.swm":
			found, err := readWIM(f, from)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrNoEditions, err)
			}
			return found, err
		}
	}
	return nil, nil
}

// readWIM reads the editions from the XML of a WIM.
func readWIM(f File, from io.ReaderAt) ([]Edition, error) {
	head, err := f.read(from, 0, wimHeaderSize)
	if err != nil {
		return nil, err
	}
	switch string(head[:8]) {
	case "MSWIM\x00\x00\x00":
	case "WLPWM\x00\x00\x00": // a WIM for pipes: the complete header is at the end
		if head, err = f.read(from, f.Size()-wimHeaderSize, wimHeaderSize); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("the file is not a WIM")
	}
	at := head[wimXMLOffset:]
	size, flags, offset := int64(little.Uint64(at)&(1<<56-1)), at[7], int64(little.Uint64(at[8:]))
	if flags&flagCompressed != 0 || size > maxXMLSize || size%2 != 0 {
		return nil, errors.New("its XML is too long or compressed")
	}
	text, err := f.read(from, offset, size)
	if err != nil {
		return nil, err
	}
	units := make([]uint16, len(text)/2)
	for n := range units {
		units[n] = little.Uint16(text[2*n:])
	}
	var info struct {
		Images []struct {
			Number int64  `xml:"INDEX,attr"`
			Name   string `xml:"NAME"`
		} `xml:"IMAGE"`
	}
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff")), &info); err != nil {
		return nil, fmt.Errorf("parse its XML: %w", err)
	}
	var all []Edition
	for _, one := range info.Images {
		name := strings.TrimSpace(one.Name)
		if name == "" || len(name) > 255 || strings.ContainsRune(name, 0) || len(all) == maxEditions {
			return nil, errors.New("it has too many images or one without a name")
		}
		all = append(all, Edition{one.Number, name})
	}
	return all, nil
}

// read reads n bytes of a file at an offset.
func (f File) read(from io.ReaderAt, at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > f.Size()-n {
		return nil, errTruncated
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
