package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/ironplane/ironplane/pkg/runtime/health"
)

// Program is what a main is: commands, and a configuration for all of them that comes from the environment.
type Program struct {
	Name     string
	Config   any       // a pointer to a struct, as configure reads it
	Commands []Command // the first is the one that is meant where none is given
	// Checks are of what the first command needs of what the configuration names. They change nothing.
	Checks func() []health.Check
}

// Command is one thing that a program does.
type Command struct {
	Name, Summary string
	Run           func(context.Context) error // once the configuration is read
}

// Main does what the arguments say, and exits.
func (p Program) Main() {
	Main(func(ctx context.Context) error { return p.run(ctx, os.Args[1:], os.Environ(), os.Stdout) })
}

func (p Program) run(ctx context.Context, arguments, environment []string, out io.Writer) error {
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
	if len(arguments) > 1 {
		return fmt.Errorf("what is %q? All settings are in the environment: see %s help", arguments[1], p.Name)
	}
	if name == "check" || name == "--check" {
		return p.examine(ctx, environment, out)
	}
	for _, c := range p.Commands {
		if c.Name != name {
			continue
		}
		if invalid := configure(p.Config, environment, name); invalid != nil {
			return errors.Join(invalid...)
		}
		return c.Run(ctx)
	}
	return fmt.Errorf("there is no command %q: see %s help", name, p.Name)
}

func (p Program) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [command]\n\nCommands:\n", p.Name)
	for i, c := range p.Commands {
		fmt.Fprintf(&b, "  %-10s %s", c.Name, c.Summary)
		if i == 0 {
			b.WriteString(" (the default)")
		}
		b.WriteString("\n")
	}
	for _, builtin := range [][2]string{
		{"check", "say all that would keep it from starting, and change nothing; --check, too"}, {"version", "say which one this is"},
		{"help", "print this"},
	} {
		fmt.Fprintf(&b, "  %-10s %s\n", builtin[0], builtin[1])
	}
	fmt.Fprintf(&b, "\nEnvironment:\n%s", describe(p.Config))
	return b.String()
}

// LogConfig is how a program logs.
type LogConfig struct {
	Level  slog.Level `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO (a line for each request), WARN or ERROR"`
	Format LogFormat  `env:"IRONPLANE_LOG_FORMAT" default:"text" doc:"text (key=value) or json, a line each"`
}

// LogFormat is how a line of a log is written.
type LogFormat string

// UnmarshalText reads text or json.
func (f *LogFormat) UnmarshalText(text []byte) error {
	if *f = LogFormat(text); *f != "text" && *f != "json" {
		return errors.New("it is neither text nor json")
	}
	return nil
}

// Log is the log of a program of this name, on stderr, until it is closed.
func (c LogConfig) Log(name string) (log *slog.Logger, closeLog func()) {
	options := &slog.HandlerOptions{Level: c.Level}
	var lines slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if c.Format == "json" {
		lines = slog.NewJSONHandler(os.Stderr, options)
	}
	h := newOutages(lines)
	return slog.New(h).With(serviceAttr, name), h.close
}
