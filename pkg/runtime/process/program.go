package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/runtime/health"
)

// Program is the main program of a process: its commands, and the configuration that they read from the environment.
type Program struct {
	Name     string
	Config   any       // a pointer to a struct for configure
	Commands []Command // the first is the default
	// Service is the service that the program runs. The help lists no variables that are only for others; empty: it lists
	// all.
	Service string
	// Checks returns checks of what the first command needs. They change nothing.
	Checks func() []health.Check
}

// Command is a command of a program.
type Command struct {
	Name, Summary string
	Run           func(context.Context) error // called after the configuration is read
	// Argument names the argument that the command needs, such as FILE. RunWith gets it, and stands in the place of Run.
	Argument string
	// Option is the one argument that the command accepts besides none, such as --json. RunWith gets it, and Run runs without it.
	Option  string
	RunWith func(ctx context.Context, argument string) error
}

// Main runs the command in the arguments, and exits.
func (p Program) Main() {
	Main(func(ctx context.Context) error { return p.Run(ctx, os.Args[1:], os.Environ(), os.Stdout) })
}

// Run runs the command in the arguments, with its configuration from the environment. out gets the help, the version and the output of
// check.
func (p Program) Run(ctx context.Context, arguments, environment []string, out io.Writer) error {
	name := p.Commands[0].Name
	if len(arguments) > 0 {
		name = arguments[0]
	}
	switch name {
	case "help", "-h", "--help":
		_, err := io.WriteString(out, p.usage())
		return err
	case "version", "--version":
		_, err := fmt.Fprintf(out, "%s %s\n", p.Name, ownBuild())
		return err
	}
	at := slices.IndexFunc(p.Commands, func(c Command) bool { return c.Name == name })
	if at >= 0 && p.Commands[at].Argument != "" {
		return p.runWith(ctx, p.Commands[at], arguments, environment)
	}
	if at >= 0 && p.Commands[at].Option != "" && len(arguments) > 1 {
		return p.runWith(ctx, p.Commands[at], arguments, environment)
	}
	if len(arguments) > 1 {
		return fmt.Errorf("unexpected argument %q: settings are environment variables, see %s help", arguments[1], p.Name)
	}
	if name == "check" || name == "--check" {
		return p.examine(ctx, environment, out)
	}
	if at < 0 {
		return fmt.Errorf("unknown command %q: see %s help", name, p.Name)
	}
	if invalid := configure(p.Config, environment, name); invalid != nil {
		return errors.Join(invalid...)
	}
	return p.Commands[at].Run(ctx)
}

// runWith runs a command with its argument or its option.
func (p Program) runWith(ctx context.Context, c Command, arguments, environment []string) error {
	isValid := len(arguments) == 2 && arguments[1] != ""
	if c.Option != "" {
		isValid = isValid && arguments[1] == c.Option
	} else {
		isValid = isValid && !strings.HasPrefix(arguments[1], "-")
	}
	if !isValid {
		return fmt.Errorf("usage: %s %s; settings are environment variables, see %s help", p.Name, c.synopsis(), p.Name)
	}
	if invalid := configure(p.Config, environment, c.Name); invalid != nil {
		return errors.Join(invalid...)
	}
	return c.RunWith(ctx, arguments[1])
}

// synopsis returns the command's name with its argument or option.
func (c Command) synopsis() string {
	if c.Option != "" {
		return c.Name + " [" + c.Option + "]"
	}
	return strings.TrimSpace(c.Name + " " + c.Argument)
}

func (p Program) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [command]\n\nCommands:\n", p.Name)
	for i, c := range p.Commands {
		fmt.Fprintf(&b, "  %-10s %s", c.synopsis(), c.Summary)
		if i == 0 {
			b.WriteString(" (the default)")
		}
		b.WriteString("\n")
	}
	for _, builtin := range [][2]string{
		{"check", "list everything that would keep the program from starting, and change nothing; also --check"},
		{"version", "print the version"},
		{"help", "print this help"},
	} {
		fmt.Fprintf(&b, "  %-10s %s\n", builtin[0], builtin[1])
	}
	fmt.Fprintf(&b, "\nEnvironment:\n%s", describe(p.Config, p.Service))
	return b.String()
}

// LogConfig configures a program's log.
type LogConfig struct {
	Level  slog.Level `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"the lowest level to log: DEBUG, INFO (includes a line for each request), WARN or ERROR"`
	Format LogFormat  `env:"IRONPLANE_LOG_FORMAT" default:"text" doc:"the format of log lines: text (key=value) or json"`
}

// LogFormat is the format of log lines: text or json.
type LogFormat string

// UnmarshalText parses text or json.
func (f *LogFormat) UnmarshalText(text []byte) error {
	if *f = LogFormat(text); *f != "text" && *f != "json" {
		return errors.New("it must be text or json")
	}
	return nil
}

// Log returns the log of the program with this name, which writes to stderr. closeLog ends it.
func (c LogConfig) Log(name string) (log *slog.Logger, closeLog func()) {
	options := &slog.HandlerOptions{Level: c.Level}
	var lines slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if c.Format == "json" {
		lines = slog.NewJSONHandler(os.Stderr, options)
	}
	h := newOutages(lines)
	return slog.New(h).With(serviceAttr, name), h.close
}
