// Package packages reads the packages that extend the panels. Each package is a folder with a manifest.json. The files in
// its folder assets are for browsers; nothing else is listed or served.
package packages

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxPackages      = 1000
	maxFiles         = 10_000 // in one package
	maxManifestBytes = 64 << 10
	manifestFile     = "manifest.json"
	assetFolder      = "assets"
)

// Manifest is a package's manifest.json.
type Manifest struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

// Asset is a file in a package's folder assets.
type Asset struct {
	Path string // relative to assets, with slashes
	Hash string // changes with the content
}

// Installed reads the packages in a folder.
type Installed struct {
	Folder string // empty: no packages are installed

	mu     sync.Mutex
	hashes map[string]cachedHash // by folder and path
}

// cachedHash is a file's hash, and the file as it was when it was hashed.
type cachedHash struct {
	info fs.FileInfo
	hash string
}

// Folders returns the names of the packages' folders, in order.
func (i *Installed) Folders() (names []string, err error) {
	if i.Folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(i.Folder)
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() && !isHidden(entry.Name()) && len(names) < maxPackages {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// open opens the folder of a package. Links in it cannot lead out of it.
func (i *Installed) open(folder string) (*os.Root, error) {
	all, err := os.OpenRoot(i.Folder)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	return subfolder(all, folder)
}

// subfolder opens a folder in another one. It refuses links, even if a link replaces the folder at the same time.
func subfolder(in *os.Root, name string) (*os.Root, error) {
	entry, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !entry.IsDir() {
		return nil, fs.ErrNotExist
	}
	opened, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if info, err := opened.Stat("."); err != nil || !os.SameFile(info, entry) {
		_ = opened.Close()
		return nil, cmp.Or(err, fs.ErrNotExist)
	}
	return opened, nil
}

// openFile opens a regular file. Opening does not block if the file is a pipe.
func openFile(in *os.Root, name string) (*os.File, fs.FileInfo, error) {
	file, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// Read returns a package's manifest, and its scripts and style sheets in order. The error is fs.ErrNotExist if there is no
// package in the folder.
func (i *Installed) Read(folder string) (m Manifest, assets []Asset, err error) {
	root, err := i.open(folder)
	if err != nil {
		return m, nil, err
	}
	defer root.Close()
	file, _, err := openFile(root, manifestFile)
	if err != nil {
		return m, nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxManifestBytes))
	if err != nil {
		return m, nil, err
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Name == "" {
		return m, nil, fmt.Errorf("read the manifest of package %s: %w", folder, cmp.Or(err, errors.New("the name is missing")))
	}
	below, err := subfolder(root, assetFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, nil
	} else if err != nil {
		return m, nil, err
	}
	defer below.Close()
	seen := 0
	err = fs.WalkDir(below.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if seen++; err != nil || seen > maxFiles {
			return cmp.Or(err, fs.SkipAll)
		}
		if isHidden(entry.Name()) && name != "." {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() || !slices.Contains([]string{".js", ".mjs", ".css"}, path.Ext(name)) {
			return nil
		}
		asset, info, err := openFile(below, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was deleted at the same time
		} else if err != nil {
			return nil // links that lead out, and unreadable files, are not served either
		}
		defer asset.Close()
		hash, err := i.hash(folder, name, asset, info)
		assets = append(assets, Asset{name, hash})
		return err
	})
	return m, assets, err
}

// Open returns an asset, its hash and its time of modification. The error is fs.ErrNotExist if there is no such asset.
func (i *Installed) Open(folder, name string) (*os.File, Asset, time.Time, error) {
	for element := range strings.SplitSeq(name, "/") {
		if isHidden(element) {
			return nil, Asset{}, time.Time{}, fs.ErrNotExist
		}
	}
	if !fs.ValidPath(name) || strings.Contains(name, "\\") {
		return nil, Asset{}, time.Time{}, fs.ErrNotExist
	}
	root, err := i.open(folder)
	if err != nil {
		return nil, Asset{}, time.Time{}, err
	}
	defer root.Close()
	below, err := subfolder(root, assetFolder)
	if err != nil {
		return nil, Asset{}, time.Time{}, err
	}
	defer below.Close()
	file, info, err := openFile(below, name)
	if err != nil {
		return nil, Asset{}, time.Time{}, fs.ErrNotExist // also if a link leads out
	}
	hash, err := i.hash(folder, name, file, info)
	if err != nil {
		_ = file.Close()
		return nil, Asset{}, time.Time{}, err
	}
	return file, Asset{name, hash}, info.ModTime(), nil
}

// hash returns an open file's hash. It hashes the file only if it changed since the last time.
func (i *Installed) hash(folder, name string, file *os.File, info fs.FileInfo) (string, error) {
	key := folder + "/" + name
	i.mu.Lock()
	known, ok := i.hashes[key]
	i.mu.Unlock()
	if ok && os.SameFile(known.info, info) && known.info.Size() == info.Size() && known.info.ModTime().Equal(info.ModTime()) {
		return known.hash, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(file, info.Size())); err != nil {
		return "", fmt.Errorf("hash %s: %w", key, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("hash %s: %w", key, err)
	}
	hash := base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hashes == nil || len(i.hashes) >= maxFiles {
		i.hashes = map[string]cachedHash{}
	}
	i.hashes[key] = cachedHash{info, hash}
	return hash, nil
}

// types are the media types of assets. HTML is missing on purpose: browsers would show it as a page of this host.
var types = map[string]string{
	".js":    "text/javascript; charset=utf-8",
	".mjs":   "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".json":  "application/json",
	".map":   "application/json",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".jpg":   "image/jpeg",
	".jpeg":  "image/jpeg",
	".gif":   "image/gif",
	".webp":  "image/webp",
	".avif":  "image/avif",
	".ico":   "image/x-icon",
	".woff":  "font/woff",
	".woff2": "font/woff2",
	".ttf":   "font/ttf",
	".wasm":  "application/wasm",
	".txt":   "text/plain; charset=utf-8",
}

// unknownType is the media type of all other files. Browsers offer them as a download.
const unknownType = "application/octet-stream"

// Type returns the asset's media type.
func (a Asset) Type() string { return cmp.Or(types[strings.ToLower(path.Ext(a.Path))], unknownType) }

// Types returns all media types of assets, without parameters, in order.
func Types() []string {
	all := []string{unknownType}
	for _, known := range types {
		media, _, _ := strings.Cut(known, ";")
		all = append(all, media)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
