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

// session answers one who speaks SFTP. The root has the folder files, and, for the control plane alone, parts.
type session struct {
	agent *Agent
	may   rights
	open  atomic.Int32
}

// named is the path in the tree of what a request names: "." is the folder files itself.
func named(asked string) (string, bool) {
	if asked == "/"+siteagent.SFTPFiles {
		return ".", true
	}
	return strings.CutPrefix(asked, "/"+siteagent.SFTPFiles+"/")
}

// local is the path in the tree of what people may change.
func (s *session) local(asked string) (string, error) {
	name, ok := named(asked)
	if !ok || !s.may.brings || !strings.HasPrefix(name, localFolder+"/") {
		return "", sftp.ErrSSHFxPermissionDenied
	}
	return name, nil
}

// take counts an open file.
func (s *session) take() error {
	if s.open.Add(1) > mostOpen {
		s.open.Add(-1)
		return errors.New("too many files are open")
	}
	return nil
}

// Fileread opens a file to be read.
func (s *session) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	name, ok := named(r.Filepath)
	if !ok || !s.may.reads() {
		return nil, sftp.ErrSSHFxPermissionDenied
	}
	if err := s.take(); err != nil {
		return nil, err
	}
	file, _, err := s.agent.tree.Open(name)
	if err != nil {
		s.open.Add(-1)
		return nil, s.failure(err)
	}
	return &readFile{file, s}, nil
}

type readFile struct {
	*os.File
	session *session
}

func (f *readFile) Close() error {
	f.session.open.Add(-1)
	return f.File.Close()
}

// Filewrite takes a part of the control plane's, or a file that somebody brings.
func (s *session) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	if r.Pflags().Append {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	if err := s.take(); err != nil {
		return nil, err
	}
	arrival, err := s.arrival(r)
	if err != nil {
		s.open.Add(-1)
		return nil, s.failure(err)
	}
	return &writtenFile{arrival, s}, nil
}

func (s *session) arrival(r *sftp.Request) (*tree.Arrival, error) {
	if sum, isPart := strings.CutPrefix(r.Filepath, "/"+siteagent.SFTPParts+"/"); isPart && s.may.parts {
		return s.agent.tree.Part(sum, r.Pflags().Trunc)
	}
	name, err := s.local(r.Filepath)
	if err != nil {
		return nil, err
	}
	if _, err := s.agent.tree.Stat(path.Dir(name)); err != nil && path.Dir(name) != localFolder {
		return nil, err
	}
	return s.agent.tree.Bring(name)
}

type writtenFile struct {
	arrival *tree.Arrival
	session *session
}

func (f *writtenFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.arrival.WriteAt(p, at)
	return n, f.session.failure(err)
}

// TransferError says that the connection has ended in the middle.
func (f *writtenFile) TransferError(error) { f.arrival.Abort() }

func (f *writtenFile) Close() error {
	f.session.open.Add(-1)
	return f.session.failure(f.arrival.Close())
}

// Filecmd changes what people brought.
func (s *session) Filecmd(r *sftp.Request) error {
	name, err := s.local(r.Filepath)
	if err != nil {
		return err
	}
	files := s.agent.tree
	switch r.Method {
	case "Setstat": // modes and times are the agent's own
		return nil
	case "Rename", "PosixRename":
		to, err := s.local(r.Target)
		if err != nil {
			return err
		}
		return s.failure(files.Rename(name, to, r.Method == "PosixRename"))
	case "Mkdir":
		if err := files.MakeFolder(localFolder); err != nil && !errors.Is(err, tree.ErrInTheWay) {
			return s.failure(err)
		}
		return s.failure(files.MakeFolder(name))
	case "Rmdir":
		return s.failure(files.RemoveFolder(name))
	case "Remove":
		return s.failure(files.Remove(name))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename is a rename that replaces what is there.
func (s *session) PosixRename(r *sftp.Request) error { return s.Filecmd(r) }

// Filelist lists a folder, or looks at what is there.
func (s *session) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if !s.may.reads() {
		return nil, sftp.ErrSSHFxPermissionDenied
	}
	if r.Filepath == "/" {
		is, err := s.agent.tree.Stat(".")
		if err != nil {
			return nil, s.failure(err)
		}
		return listed{inRoot{is}}, nil
	}
	name, ok := named(r.Filepath)
	if !ok {
		return nil, fs.ErrNotExist
	}
	switch r.Method {
	case "List":
		all, err := s.agent.tree.List(name)
		return listed(all), s.failure(err)
	case "Stat":
		is, err := s.agent.tree.Stat(name)
		return listed{is}, s.failure(err)
	}
	return nil, sftp.ErrSSHFxOpUnsupported
}

// inRoot is the folder files as the root has it.
type inRoot struct{ fs.FileInfo }

func (inRoot) Name() string { return siteagent.SFTPFiles }

type listed []fs.FileInfo

func (l listed) ListAt(into []os.FileInfo, at int64) (int, error) {
	if at >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(into, l[at:])
	if n < len(into) {
		return n, io.EOF
	}
	return n, nil
}

// failure is what a caller is told of what went wrong: nothing of where the folder is.
func (s *session) failure(err error) error {
	switch {
	case err == nil, errors.Is(err, sftp.ErrSSHFxPermissionDenied), errors.Is(err, io.EOF):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errors.New("the agent's disk is full")
	}
	if _, inFolder := errors.AsType[*fs.PathError](err); inFolder && !errors.Is(err, tree.ErrInTheWay) {
		s.agent.log.Error("a file cannot be given or taken by SFTP", "error", err)
		return errors.New("the agent cannot do this: its log says why")
	}
	return err
}
