package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/process"
)

const bucketScheme = "s3://"

// Write writes an archive of an installation, which may run meanwhile. The file appears with its whole content or not at all, and only its
// owner can read it.
func Write(ctx context.Context, i Installation, file string, screen io.Writer) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s exists; choose another name", file), err)
	}
	partial, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-") // mode 0600
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	defer os.Remove(partial.Name())
	defer partial.Close()
	w := &writer{tar: tar.NewWriter(partial), manifest: Manifest{
		Format: format, Created: time.Now().UTC().Truncate(time.Second), Version: process.Version(), Elsewhere: []string{},
	}}
	if err := w.writeAll(ctx, i, filepath.Dir(file)); err != nil {
		return err
	}
	if err := errors.Join(w.tar.Close(), partial.Sync()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(partial.Name(), file); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(file)); err != nil {
		return err
	}
	return w.print(file, i.KeyIsSet, screen)
}

// writer writes the entries of an archive.
type writer struct {
	tar      *tar.Writer
	manifest Manifest
}

// writeAll writes all entries. The store comes after the database, so that it has every file that the database names.
func (w *writer) writeAll(ctx context.Context, i Installation, scratch string) error {
	if err := w.addDatabase(ctx, i, scratch); err != nil {
		return err
	}
	if i.KeyIsSet {
		w.manifest.Elsewhere = append(w.manifest.Elsewhere, "the master key, which IRONPLANE_MASTER_KEY sets")
	} else if err := w.addText(masterKeyName, i.MasterKey.Reveal()); err != nil {
		return err
	}
	if err := w.addStore(ctx, i); err != nil {
		return err
	}
	if err := w.addSettings(ctx, i.Settings); err != nil {
		return err
	}
	text, err := json.MarshalIndent(w.manifest, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxManifest {
		return errors.New("the store has too many files for one archive; set IRONPLANE_BACKUP_STORE=false, and copy it by other means")
	}
	return w.addText(manifestName, string(text))
}

// addDatabase adds a dump of each schema. All dumps are of one time.
func (w *writer) addDatabase(ctx context.Context, i Installation, scratch string) error {
	conn, err := connect(ctx, i.Admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	snapshot, err := exportSnapshot(ctx, conn)
	if err != nil {
		return err
	}
	schemas, err := findSchemas(ctx, conn)
	if err != nil {
		return err
	}
	w.manifest.Schemas = map[string]int64{}
	for _, s := range schemas {
		if s.isEmpty {
			continue
		}
		w.manifest.Schemas[s.service] = s.migration
		if err := w.addDump(ctx, i, s.service, snapshot, scratch); err != nil {
			return fmt.Errorf("dump %s: %w", s.service, err)
		}
	}
	if len(w.manifest.Schemas) == 0 {
		return errors.New("the database has no data of Ironplane")
	}
	return nil
}

// addDump adds the dump of a schema. An entry begins with its size, so the dump goes into a file first. The file has no name, and ends with
// the process.
func (w *writer) addDump(ctx context.Context, i Installation, service, snapshot, scratch string) error {
	temporary, err := os.CreateTemp(scratch, ".dump-")
	if err != nil {
		return err
	}
	defer temporary.Close()
	if err := os.Remove(temporary.Name()); err != nil {
		return err
	}
	if err := dump(ctx, i.Admin, service, snapshot, temporary); err != nil {
		return err
	}
	return w.addOpen(ctx, dumpName(service), temporary)
}

// addStore adds the files of the store, if it is a folder.
func (w *writer) addStore(ctx context.Context, i Installation) error {
	switch {
	case i.Store == "":
		w.manifest.Elsewhere = append(w.manifest.Elsewhere, "the store of ISOs and drivers: set IRONPLANE_STORE to include a folder")
		return nil
	case strings.HasPrefix(i.Store, bucketScheme):
		w.manifest.Elsewhere = append(w.manifest.Elsewhere, "the store of ISOs and drivers, "+i.Store)
		return nil
	case !i.WithStore:
		w.manifest.Elsewhere = append(w.manifest.Elsewhere, "the store of ISOs and drivers, the folder "+i.Store)
		return nil
	}
	err := filepath.WalkDir(i.Store, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(i.Store, path)
		if err != nil {
			return err
		}
		err = w.addFile(ctx, storeFolder+filepath.ToSlash(name), path)
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			err = nil
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // the store is created when it is first used
		err = nil
	}
	return err
}

func (w *writer) addSettings(ctx context.Context, folder string) error {
	if folder == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.env"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := w.addFile(ctx, settingsFolder+filepath.Base(file), file); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) addFile(ctx context.Context, name, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return w.addOpen(ctx, name, file)
}

// addOpen adds a file from its beginning. A file that grows meanwhile is an unfinished upload, which the database does not name.
func (w *writer) addOpen(ctx context.Context, name string, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return w.add(name, info.Size(), contextReader{ctx, io.NewSectionReader(file, 0, info.Size())})
}

func (w *writer) addText(name, text string) error {
	return w.add(name, int64(len(text)), strings.NewReader(text))
}

func (w *writer) add(name string, size int64, content io.Reader) error {
	err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: w.manifest.Created})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(w.tar, hash), content, size); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	w.manifest.Parts = append(w.manifest.Parts, Part{name, size, hex.EncodeToString(hash.Sum(nil))})
	return nil
}

// print says what the archive has, and what else to keep.
func (w *writer) print(file string, keyIsElsewhere bool, screen io.Writer) error {
	var size int64
	files := 0
	for _, p := range w.manifest.Parts {
		size += p.Size
		if strings.HasPrefix(p.Name, storeFolder) {
			files++
		}
	}
	fmt.Fprintf(screen, "%s has %d schemas and %d files of the store: %d bytes.\n", file, len(w.manifest.Schemas), files, size)
	for _, missing := range w.manifest.Elsewhere {
		fmt.Fprintf(screen, "It does not have %s. Back that up, too.\n", missing)
	}
	text := "It has the master key: anyone who can read the file can read all secrets. Keep it where nobody else can read it."
	if keyIsElsewhere {
		text = "It has all data, with secrets sealed. Keep it where nobody else can read it."
	}
	_, err := fmt.Fprintln(screen, text)
	return err
}

// contextReader is a reader that fails when its context ends.
type contextReader struct {
	ctx    context.Context
	reader io.Reader
}

// Read reads unless the context has ended.
func (r contextReader) Read(into []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.reader.Read(into)
}

// syncFolder makes the names in a folder survive a crash of the machine.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
