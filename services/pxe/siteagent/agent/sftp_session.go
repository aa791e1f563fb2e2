package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/pkg/sftp"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// session serves one SFTP session. Its root has the folder files, and for the control plane the folder parts, which is not listed.
type session struct {
	agent     *Agent
	rights    sftpRights
	openFiles atomic.Int32
}

// treePath returns the path in the tree for a path of SFTP. "." is the folder files itself.
func treePath(requestPath string) (string, bool) {
	if requestPath == "/"+siteagent.SFTPFiles {
		return ".", true
	}
	return strings.CutPrefix(requestPath, "/"+siteagent.SFTPFiles+"/")
}

// localPath returns the path in the tree if the client may change it: a path in the folder local, and a client that may upload.
func (s *session) localPath(requestPath string) (string, error) {
	name, ok := treePath(requestPath)
	if !ok || !s.rights.canUpload || !strings.HasPrefix(name, localFolder+"/") {
		return "", sftp.ErrSSHFxPermissionDenied
	}
	return name, nil
}

// acquireFile counts an open file, and fails if there are too many.
func (s *session) acquireFile() error {
	if s.openFiles.Add(1) > maxOpenFiles {
		s.openFiles.Add(-1)
		return errors.New("too many files are open on this connection")
	}
	return nil
}

// Fileread opens a file for reading.
func (s *session) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	name, ok := treePath(r.Filepath)
	if !ok || !s.rights.canRead() {
		return nil, sftp.ErrSSHFxPermissionDenied
	}
	if err := s.acquireFile(); err != nil {
		return nil, err
	}
	file, _, err := s.agent.tree.Open(name)
	if err != nil {
		s.openFiles.Add(-1)
		return nil, s.sftpError(err)
	}
	return &readFile{file, s}, nil
}

// readFile is a file that is open for reading.
type readFile struct {
	*os.File
	session *session
}

func (f *readFile) Close() error {
	f.session.openFiles.Add(-1)
	return f.File.Close()
}

// Filewrite opens a part for the control plane, or an upload.
func (s *session) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	if r.Pflags().Append {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	if err := s.acquireFile(); err != nil {
		return nil, err
	}
	upload, err := s.startUpload(r)
	if err != nil {
		s.openFiles.Add(-1)
		return nil, s.sftpError(err)
	}
	return &writtenFile{upload, s}, nil
}

// startUpload opens the part or the upload that the request names.
func (s *session) startUpload(r *sftp.Request) (*tree.Upload, error) {
	if sum, isPart := strings.CutPrefix(r.Filepath, "/"+siteagent.SFTPParts+"/"); isPart && s.rights.canSendParts {
		return s.agent.tree.OpenPart(sum, r.Pflags().Trunc)
	}
	name, err := s.localPath(r.Filepath)
	if err != nil {
		return nil, err
	}
	if _, err := s.agent.tree.Stat(path.Dir(name)); err != nil && path.Dir(name) != localFolder {
		return nil, err
	}
	return s.agent.tree.CreateUpload(name)
}

// writtenFile is a part or an upload that is being written.
type writtenFile struct {
	upload  *tree.Upload
	session *session
}

// WriteAt writes a piece, in any order.
func (f *writtenFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.upload.WriteAt(p, at)
	return n, f.session.sftpError(err)
}

// TransferError discards an upload whose connection broke.
func (f *writtenFile) TransferError(error) { f.upload.Abort() }

// Close completes the upload.
func (f *writtenFile) Close() error {
	f.session.openFiles.Add(-1)
	return f.session.sftpError(f.upload.Close())
}

// Filecmd renames or deletes uploads, or creates folders for them.
func (s *session) Filecmd(r *sftp.Request) error {
	name, err := s.localPath(r.Filepath)
	if err != nil {
		return err
	}
	files := s.agent.tree
	switch r.Method {
	case "Setstat": // the agent sets modes and times itself
		return nil
	case "Rename", "PosixRename":
		to, err := s.localPath(r.Target)
		if err != nil {
			return err
		}
		return s.sftpError(files.Rename(name, to, r.Method == "PosixRename"))
	case "Mkdir":
		if err := files.MakeFolder(localFolder); err != nil && !errors.Is(err, tree.ErrPathConflict) {
			return s.sftpError(err)
		}
		return s.sftpError(files.MakeFolder(name))
	case "Rmdir":
		return s.sftpError(files.RemoveFolder(name))
	case "Remove":
		return s.sftpError(files.Remove(name))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename renames a file, and replaces another one.
func (s *session) PosixRename(r *sftp.Request) error { return s.Filecmd(r) }

// Filelist lists a folder, or describes one file.
func (s *session) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if !s.rights.canRead() {
		return nil, sftp.ErrSSHFxPermissionDenied
	}
	if r.Filepath == "/" {
		info, err := s.agent.tree.Stat(".")
		if err != nil {
			return nil, s.sftpError(err)
		}
		return fileList{rootEntry{info}}, nil
	}
	name, ok := treePath(r.Filepath)
	if !ok {
		return nil, fs.ErrNotExist
	}
	switch r.Method {
	case "List":
		entries, err := s.agent.tree.List(name)
		return fileList(entries), s.sftpError(err)
	case "Stat":
		info, err := s.agent.tree.Stat(name)
		return fileList{info}, s.sftpError(err)
	}
	return nil, sftp.ErrSSHFxOpUnsupported
}

// rootEntry is the folder files in the listing of the root.
type rootEntry struct{ fs.FileInfo }

func (rootEntry) Name() string { return siteagent.SFTPFiles }

// fileList is a listing, in the form that package sftp reads.
type fileList []fs.FileInfo

// ListAt copies entries from an index on, and returns io.EOF at the end.
func (l fileList) ListAt(into []os.FileInfo, at int64) (int, error) {
	if at >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(into, l[at:])
	if n < len(into) {
		return n, io.EOF
	}
	return n, nil
}

// sftpError returns the error for the client. It hides the location of the agent's folder.
func (s *session) sftpError(err error) error {
	switch {
	case err == nil, errors.Is(err, sftp.ErrSSHFxPermissionDenied), errors.Is(err, io.EOF):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errors.New("the agent's disk is full")
	}
	if _, inFolder := errors.AsType[*fs.PathError](err); inFolder && !errors.Is(err, tree.ErrPathConflict) {
		s.agent.log.Error("SFTP request failed", "error", err)
		return errors.New("the agent failed: see its log")
	}
	return err
}
