package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/config"
	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/pkg/client"
)

// login is one use of the command login.
type login struct {
	program                     *Program
	name, username, email, kind string
	authenticator               int64
	lines                       *bufio.Reader
}

func newLogin(p *Program) *cobra.Command {
	l := &login{program: p}
	command := &cobra.Command{
		Use:     "login URL",
		Short:   "Store an API's address and a key, and use them from now on",
		GroupID: groupOwn,
		Long: `Store an API's address and a key, and use them from now on.

The key is asked for, or read from standard input. With --username or --email the password is, and after it the code of the second
factor if the account has one. Logins are stored in $XDG_CONFIG_HOME/ironplane/logins.json (or ~/.config), which only you can read.`,
		Example: `  ironplane login https://api.example.com
  ironplane login https://api.example.com --name staging < key
  ironplane login https://api.example.com --username anna
  ironplane login https://api.example.com --email ben@example.com --type client`,
		Args: exactly(1),
		RunE: func(command *cobra.Command, args []string) error { return l.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&l.name, "name", "", "the login's `name`. The default is the host")
	flags.StringVar(&l.username, "username", "", "sign in as the admin with this `name`")
	flags.StringVar(&l.email, "email", "", "sign in with this `address`")
	flags.StringVar(&l.kind, "type", "admin", "with --email: `admin|client`")
	flags.Int64Var(&l.authenticator, "authenticator", 0, "the `id` of the second factor to use, if the account has several")
	command.MarkFlagsMutuallyExclusive("username", "email")
	return command
}

// ask asks a person for a secret, or reads the next line of standard input.
func (l *login) ask(question string) (string, error) {
	if l.program.Prompt != nil {
		return l.program.Prompt(question)
	}
	if l.lines == nil {
		l.lines = bufio.NewReader(l.program.In)
	}
	line, err := l.lines.ReadString('\n')
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usage(errors.Join(fmt.Errorf("standard input ended before the answer to %q", question), err))
	}
	return line, nil
}

func (l *login) run(ctx context.Context, address string) error {
	path, err := config.Path(l.program.Getenv)
	if err != nil {
		return err
	}
	file, err := config.Load(path)
	if err != nil {
		return err
	}
	u, err := url.Parse(address)
	if err != nil {
		return usage(fmt.Errorf("%q is not a URL", address))
	}
	name := cmp.Or(l.name, u.Host)
	entry := config.Context{URL: address}
	if old, ok := file.Contexts[name]; ok && old.URL == address {
		entry.Device = old.Device
	}
	if l.username != "" || l.email != "" {
		err = l.signIn(ctx, &entry)
	} else {
		entry.Key, err = l.ask("Key")
	}
	if err != nil {
		return err
	}
	api, err := l.program.dial(entry.URL, entry.Key)
	if err != nil {
		return err
	}
	key, err := api.APIKeys.GetCurrent(ctx)
	if err != nil {
		return err
	}
	entry.Key = strings.TrimSpace(entry.Key)
	file.Current, file.Contexts[name] = name, entry
	if err := file.Save(path); err != nil {
		return err
	}
	fmt.Fprintf(l.program.Err, "Logged in to %s as %s (%s). The login is stored as %q.\n", address, key.Owner.Name, key.Owner.URL, name)
	return nil
}

// signIn begins a session by password, and by a second factor if the account has one.
func (l *login) signIn(ctx context.Context, entry *config.Context) error {
	api, err := l.program.dial(entry.URL, "")
	if err != nil {
		return err
	}
	password, err := l.ask("Password")
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	answer, err := api.APIKeys.Create(ctx, client.APIKeyCreate{
		Name: "ironplane on " + cmp.Or(host, "a machine"), Username: l.username, Email: l.email, Type: l.kind, Password: password,
		Device: entry.Device, Auth: l.authenticator,
	})
	if err != nil {
		return err
	}
	entry.Session, entry.Key, entry.Device = true, answer.Key, cmp.Or(answer.Device, entry.Device)
	if answer.Verify == nil {
		return nil
	}
	code, err := l.ask(fmt.Sprintf("Code of the second factor (%s)", answer.Verify.Code.Auth.Method.Name))
	if err != nil {
		return err
	}
	confirmed, err := api.VerifyCodes.Confirm(ctx, answer.Verify.Code.Auth.ID, fmt.Sprint(answer.Verify.Code.ID), client.VerifyCodeConfirm{
		Token: client.Set(strings.TrimSpace(code)), Challenge: client.Set(answer.Verify.Challenge),
	})
	if err != nil {
		return err
	}
	entry.Key, entry.Device = confirmed.Key.Key, cmp.Or(confirmed.Device, entry.Device)
	return nil
}

// loadLogins returns the stored logins, and where they are.
func (p *Program) loadLogins() (*config.File, string, error) {
	path, err := config.Path(p.Getenv)
	if err != nil {
		return nil, "", err
	}
	file, err := config.Load(path)
	return file, path, err
}

// findLogin returns a stored login: the one with a name, or the current one.
func findLogin(file *config.File, name string) (config.Context, string, error) {
	name = cmp.Or(name, file.Current)
	entry, ok := file.Contexts[name]
	if !ok {
		text := fmt.Sprintf("there is no login %q", name)
		if name == "" {
			text = "nobody is logged in: use \"ironplane login URL\", or set IRONPLANE_URL and IRONPLANE_KEY"
		}
		return entry, name, &notSignedIn{text}
	}
	return entry, name, nil
}

func newLogout(p *Program) *cobra.Command {
	return &cobra.Command{
		Use:     "logout [NAME]",
		Short:   "Forget a login. The session of a sign-in by password ends",
		GroupID: groupOwn,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			file, path, err := p.loadLogins()
			if err != nil {
				return err
			}
			entry, name, err := findLogin(file, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if entry.Session {
				api, err := p.dial(entry.URL, entry.Key)
				if err != nil {
					return err
				}
				if err := api.APIKeys.DeleteCurrent(command.Context()); err != nil && !errors.Is(err, client.ErrUnauthorized) {
					return err // a session that has ended already needs no end
				}
			}
			delete(file.Contexts, name)
			if file.Current == name {
				file.Current = ""
			}
			return file.Save(path)
		},
	}
}

func newContext(p *Program) *cobra.Command {
	command := &cobra.Command{
		Use: "context", Short: "List the stored logins, and choose one", GroupID: groupOwn, Args: cobra.NoArgs, RunE: unknownVerb,
	}
	names := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		file, _, err := p.loadLogins()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
	command.AddCommand(&cobra.Command{
		Use: "list", Short: "List the stored logins", Args: exactly(0),
		RunE: func(*cobra.Command, []string) error {
			file, _, err := p.loadLogins()
			if err != nil {
				return err
			}
			items := []json.RawMessage{}
			for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
				item, err := json.Marshal(map[string]any{"name": name, "url": file.Contexts[name].URL, "current": name == file.Current})
				if err != nil {
					return err
				}
				items = append(items, item)
			}
			print := p.print
			print.Default = []string{"name", "url", "current"}
			return print.Items(p.Out, items)
		},
	}, &cobra.Command{
		Use: "use NAME", Short: "Use a stored login from now on", Args: exactly(1), ValidArgsFunction: names,
		RunE: func(_ *cobra.Command, args []string) error {
			file, path, err := p.loadLogins()
			if err != nil {
				return err
			}
			if _, file.Current, err = findLogin(file, args[0]); err != nil {
				return err
			}
			return file.Save(path)
		},
	})
	return command
}

// newWhoami returns the command that says whose key is used.
func newWhoami(p *Program) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Print whose key is used, and what it may do", GroupID: groupOwn, Args: exactly(0),
		RunE: func(command *cobra.Command, _ []string) error {
			api, err := p.connect()
			if err != nil {
				return err
			}
			r := &client.Request{Operation: "getCurrentAPIKey", Method: "GET", Path: "/auth/key/current"}
			text, err := lookup.Fetch(command.Context(), api, r)
			if err != nil {
				return err
			}
			return printAnswer(p.Out, text, p.print)
		},
	}
}
