package devservers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

// dataVersion returns the major version of the Postgres that created a data folder, or "" if there is no folder.
func dataVersion(data string) (string, error) {
	version, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err == nil {
		return strings.TrimSpace(string(version)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return "", fmt.Errorf("%s is not a data folder of Postgres: move it away", data)
}

// superuserPassword reads the superuser's password from its file, or creates it if create is true and there is none.
func superuserPassword(path string, create bool) (string, error) {
	password, err := os.ReadFile(path)
	if err == nil {
		return string(password), nil
	}
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the superuser's password: %w", err)
	}
	password = []byte(newPassword())
	// Written under another name first, so that the file is complete once it exists.
	if err := writeSynced(path+".new", password); err != nil {
		return "", fmt.Errorf("write the superuser's password: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("write the superuser's password: %w", err)
	}
	return string(password), nil
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// createData creates the data folder under another name first, so that it is complete once it exists.
func (p *Postgres) createData(ctx context.Context, found installation, durable bool) error {
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	runAs, err := findAccount("postgres", "nobody")
	if err != nil {
		return err
	}
	unfinished := p.dataFolder() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(unfinished) // renamed by then if all went well
	password := filepath.Join(p.dir, "password.initdb")
	if err := writeSynced(password, []byte(p.password)); err != nil {
		return err
	}
	defer os.Remove(password)
	if runAs != nil {
		for _, path := range []string{unfinished, password} {
			if err := os.Chown(path, int(runAs.Uid), int(runAs.Gid)); err != nil {
				return err
			}
		}
	}
	err = initdb(ctx, found, runAs, unfinished, password, "C.UTF-8", durable)
	if errors.Is(err, errNoLocale) {
		err = initdb(ctx, found, runAs, unfinished, password, "C", durable)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(unfinished, p.dataFolder()); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	dir, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func initdb(ctx context.Context, found installation, runAs *syscall.Credential, dataPath, passwordPath, locale string, durable bool) error {
	data, err := os.Open(dataPath)
	if err != nil {
		return err
	}
	defer data.Close()
	password, err := os.Open(passwordPath)
	if err != nil {
		return err
	}
	defer password.Close()
	var tail child.Tail
	cmd := exec.Command(filepath.Join(found.bin, "initdb"))
	cmd.Dir, cmd.Env = "/", childEnv
	cmd.Stdout, cmd.Stderr = &tail, &tail
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: runAs}
	cmd.Args = append(cmd.Args, "--pgdata="+passFile(cmd, data), "--pwfile="+passFile(cmd, password),
		"--username="+superuser, "--auth=scram-sha-256", "--encoding=UTF8", "--locale="+locale)
	if !durable {
		cmd.Args = append(cmd.Args, "--no-sync")
	}
	c, err := child.Start(cmd, syscall.SIGINT, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		c.Abort()
		return fmt.Errorf("initdb: %w", ctx.Err())
	}
	if cmd.ProcessState.Success() {
		return nil
	}
	if strings.Contains(tail.String(), "invalid locale name") {
		return errNoLocale
	}
	return fmt.Errorf("initdb: %v: %s", cmd.ProcessState, strings.TrimSpace(tail.String()))
}

// ownerOf returns the account that the server must run as, or nil for the present one. Only root can run it as another
// account, and must, because Postgres refuses to run as root.
func ownerOf(data *os.File) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	info, err := data.Stat()
	if err != nil {
		return nil, err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}, nil
}
